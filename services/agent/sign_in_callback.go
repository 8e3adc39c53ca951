package agent

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"
)

// errForeign is an answer that doesn't belong to the sign-in that waits for one.
var errForeign = errors.New("state is not that of this sign-in")

// checkAnswer returns the code of an authorization response (4.5, RFC 9207) from the
// query of the redirect. An error response is checked as well before it is believed.
func (f directFlow) checkAnswer(rawQuery string) (string, error) {
	q, err := url.ParseQuery(rawQuery)
	if err != nil {
		return "", fail(ExitRefused, "4.5", "the redirect").because(errors.New("its query is malformed"))
	}
	one := func(name string) string {
		if values := q[name]; len(values) == 1 {
			return values[0]
		}
		return "" // poppy-0.1/4.3#d26 for what comes back: of two none counts
	}
	if subtle.ConstantTimeCompare([]byte(one("state")), []byte(f.state)) != 1 { // poppy-0.1/4.5#16
		return "", fail(ExitRefused, "4.5", "the redirect").because(errForeign)
	}
	if one("iss") != f.issuer { // poppy-0.1/4.5#17: exactly
		return "", fail(ExitRefused, "4.5", "the redirect is not from %s: its iss is %.200q", f.issuer, q.Get("iss"))
	}
	if q.Has("error") {
		r := &refusalError{code: clip(one("error")), description: clip(one("error_description"))}
		if r.code == "access_denied" {
			return "", fail(ExitRefused, "4.5", "you declined, or the Company did; nothing was changed").because(r)
		}
		return "", fail(ExitRefused, "4.5", "not signed in").because(r)
	}
	code := one("code")
	if code == "" {
		return "", fail(ExitRefused, "4.5", "the redirect has no code")
	}
	return code, nil
}

type directAnswer struct {
	code string
	err  error
}

// serveCallback waits at the redirect URI for the User's browser. Anybody can send a
// browser there: what doesn't have the state of this sign-in gets an error page, and the
// wait goes on.
func serveCallback(ln net.Listener, f directFlow) (<-chan directAnswer, func(), error) {
	u, err := httpsURL(f.redirectURI)
	if err != nil {
		return nil, nil, errors.Join(fail(ExitUsage, "4.5", "the agent's redirect URI").because(err), ln.Close())
	}
	answers := make(chan directAnswer, 1)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.EscapedPath() != u.EscapedPath() {
				callbackPage(w, http.StatusNotFound, "There is nothing here.")
				return
			}
			code, err := f.checkAnswer(r.URL.RawQuery)
			if errors.Is(err, errForeign) {
				callbackPage(w, http.StatusBadRequest, "This page belongs to no sign-in that is waiting. Please go back to the terminal.")
				return
			}
			select {
			case answers <- directAnswer{code, err}:
			default: // the first one counts
			}
			text := "You can close this page and go back to the terminal."
			if err != nil {
				text = "You are not signed in. Please go back to the terminal."
			}
			callbackPage(w, http.StatusOK, text)
		}),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // as in serveDocument
	}
	go func() { _ = srv.Serve(ln) }()
	stop := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second) // for the page to arrive
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
	}
	return answers, stop, nil
}
