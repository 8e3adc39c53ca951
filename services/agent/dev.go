package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/devca"
)

const (
	devHost     = "agent.localhost"
	devClientID = "https://" + devHost + "/agent.json"

	callbackPath     = "/oauth/callback"
	callbackPortFile = "callback-port"
	callbackPorts    = 40 // tried above the document's port before any free one is taken
)

// devSetup is what a running `poppyfield dev` says of itself in its ready file.
type devSetup struct {
	CAFile string            `json:"ca_file"`
	Hosts  map[string]string `json:"hosts"`
}

func readDevSetup(dir string) (devSetup, error) {
	var d devSetup
	raw, err := os.ReadFile(filepath.Join(dir, "ready.json"))
	if err != nil {
		return d, fail(ExitUsage, "", "no running `poppyfield dev` found in %s", dir).because(err)
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, fail(ExitUsage, "", "%s is unreadable", filepath.Join(dir, "ready.json")).because(err)
	}
	if d.CAFile == "" || d.Hosts[devHost] == "" {
		return d, fail(ExitUsage, "", "%s names no ca_file or no address for %s", filepath.Join(dir, "ready.json"), devHost)
	}
	return d, nil
}

// publishDocument serves the client document and key set at agent.localhost, where
// Companies of the dev installation look for them, until ctx ends. When another run of
// the same agent serves them already that is as good; this one takes over when that ends.
func publishDocument(ctx context.Context, d devSetup, a *Agent) error {
	ca, err := devca.Load(filepath.Dir(d.CAFile), a.clock.Now)
	if err != nil {
		return fail(ExitUsage, "4.1", "the CA of the dev installation").because(err)
	}
	conf := ca.ServerConfig(func(name string) bool { return name == devHost })
	address := d.Hosts[devHost]
	var failure error
	for range 30 {
		ln, err := listen(ctx, address, conf)
		if err == nil {
			serveDocument(ctx, ln, a.identity)
			return nil
		}
		failure = err
		in, err := a.roundTrip(ctx, outgoing{
			method: http.MethodGet, url: keySetURL(a.identity.ClientID),
			header: http.Header{"Accept": {jsonType}}, limit: documentLimit, timeout: 2 * time.Second,
		})
		if err == nil && in.status == http.StatusOK {
			if !bytes.Equal(in.body, a.identity.KeySet) {
				return fail(ExitUsage, "4.1", "another agent with other keys is served at %s (%s)", devHost, address)
			}
			go takeOver(ctx, address, conf, a.identity, a.clock)
			return nil
		}
		if err := a.clock.Wait(ctx, 100*time.Millisecond); err != nil {
			return fail(ExitNetwork, "4.1", "publishing the client document").because(err)
		}
	}
	return fail(ExitNetwork, "4.1", "the client document can't be published at %s", address).because(failure)
}

// devIdentity makes or loads the agent of a dev installation, with the way back of its
// Direct Sign-In.
func devIdentity(ctx context.Context, dir string, d devSetup) (Identity, func(context.Context) (net.Listener, error), error) {
	redirectURI, err := devRedirectURI(ctx, dir, d)
	if err != nil {
		return Identity{}, nil, err
	}
	id, err := InitIdentity(dir, devClientID, Profile{RedirectURIs: []string{redirectURI}})
	return id, devCallback(d, redirectURI, SystemClock{}.Now), err
}

// devRedirectURI is where browsers bring the User back to: this machine, at a port of
// the agent's own, for another run may be serving the documents. The port stays with
// the agent, since it is in the document and Companies keep that for a while.
func devRedirectURI(ctx context.Context, dir string, d devSetup) (string, error) {
	file := filepath.Join(dir, callbackPortFile)
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		var port string
		if port, err = freeCallbackPort(ctx, d); err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
		if err == nil {
			err = createPrivate(file, []byte(port+"\n"))
		}
		if err == nil || errors.Is(err, fs.ErrExist) {
			raw, err = os.ReadFile(file) // of two runs at once, the first one's port counts for both
		}
	}
	port := strings.TrimSpace(string(raw))
	if _, bad := strconv.ParseUint(port, 10, 16); err == nil {
		err = bad
	}
	if err != nil {
		return "", fail(ExitUsage, "4.5", "the port of the agent's redirect URI").because(err)
	}
	return "https://" + net.JoinHostPort(devHost, port) + callbackPath, nil
}

// freeCallbackPort prefers a port near the document's, where no outgoing connection takes it.
func freeCallbackPort(ctx context.Context, d devSetup) (string, error) {
	host, port, err := net.SplitHostPort(d.Hosts[devHost])
	if err != nil {
		return "", err
	}
	first, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", err
	}
	candidates := make([]string, 0, callbackPorts+1)
	for n := first + 3; n < min(first+3+callbackPorts, 1<<16); n++ { // the two after it are of the installation
		candidates = append(candidates, strconv.FormatUint(n, 10))
	}
	for _, port := range append(candidates, "0") {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
		if err != nil {
			continue
		}
		_, port, err := net.SplitHostPort(ln.Addr().String())
		return port, errors.Join(err, ln.Close())
	}
	return "", errors.New("there is no free port")
}

// devCallback returns how to listen at the redirect URI of devRedirectURI.
func devCallback(d devSetup, redirectURI string, now func() time.Time) func(context.Context) (net.Listener, error) {
	return func(ctx context.Context) (net.Listener, error) {
		ca, err := devca.Load(filepath.Dir(d.CAFile), now)
		if err != nil {
			return nil, err
		}
		u, err := httpsURL(redirectURI)
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(d.Hosts[devHost])
		if err != nil {
			return nil, err
		}
		return listen(ctx, net.JoinHostPort(host, u.Port()), ca.ServerConfig(func(name string) bool { return name == devHost }))
	}
}

func listen(ctx context.Context, address string, conf *tls.Config) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(ln, conf), nil
}

func takeOver(ctx context.Context, address string, conf *tls.Config, id Identity, clock Clock) {
	for {
		if ln, err := listen(ctx, address, conf); err == nil {
			serveDocument(ctx, ln, id)
			return
		}
		if clock.Wait(ctx, 50*time.Millisecond) != nil {
			return
		}
	}
}

func serveDocument(ctx context.Context, ln net.Listener, id Identity) {
	srv := &http.Server{
		Handler:           documentHandler(id),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		// The output is the command's; a peer that doesn't trust the CA says so itself.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	go func() {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			ln.Close()
		}
	}()
	context.AfterFunc(ctx, func() { _ = srv.Close() })
}

func keySetURL(clientID string) string {
	u, err := httpsURL(clientID)
	if err != nil {
		return ""
	}
	u.Path, u.RawPath = path.Join(path.Dir(u.Path), keySetFile), ""
	return u.String()
}

// documentHandler answers the two documents of 4.1 and nothing else.
func documentHandler(id Identity) http.Handler {
	mux := http.NewServeMux()
	serve := func(at string, content []byte) {
		mux.HandleFunc("GET "+at, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", jsonType)
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			_, _ = w.Write(content)
		})
	}
	if u, err := httpsURL(id.ClientID); err == nil {
		serve(u.Path, id.Document)
	}
	if u, err := httpsURL(keySetURL(id.ClientID)); err == nil {
		serve(u.Path, id.KeySet)
	}
	return mux
}
