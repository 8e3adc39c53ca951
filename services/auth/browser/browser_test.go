package browser_test

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// browser is a User's browser: it keeps cookies as their attributes say, and follows
// redirects and refreshes of the pages' own host.
type browser struct {
	t       testing.TB
	web     http.Handler
	host    string
	address string
	cookies map[string]string
	headers http.Header // of every request
}

func (r *rig) browser(t testing.TB) *browser {
	t.Helper()
	return &browser{t: t, web: r.web, host: r.company.Issuer.Host(), cookies: map[string]string{}, headers: http.Header{}}
}

// page is what a browser shows, or where it was sent when that is another site.
type page struct {
	url    string
	status int
	header http.Header
	body   string
}

func (b *browser) get(u string) page { return b.follow(b.do(http.MethodGet, u, nil, nil)) }

// head is what scanners and previews do.
func (b *browser) head(u string) page { return b.do(http.MethodHead, u, nil, nil) }

// once gets without following.
func (b *browser) once(u string) page { return b.do(http.MethodGet, u, nil, nil) }

// submit presses the button that sends action, with the form's hidden fields and fields.
func (b *browser) submit(p page, action string, fields url.Values) page {
	b.t.Helper()
	return b.follow(b.post(p, action, fields))
}

// post is submit without following.
func (b *browser) post(p page, action string, fields url.Values) page {
	b.t.Helper()
	form := p.hidden()
	form.Set("action", action)
	for name, values := range fields {
		form[name] = values
	}
	return b.send(p.action(), form, http.Header{"Sec-Fetch-Site": {"same-origin"}})
}

func (b *browser) send(u string, form url.Values, header http.Header) page {
	b.t.Helper()
	return b.do(http.MethodPost, u, form, header)
}

func (b *browser) do(method, u string, form url.Values, header http.Header) page {
	b.t.Helper()
	req := httptest.NewRequestWithContext(b.t.Context(), method, u, strings.NewReader(form.Encode()))
	for _, h := range []http.Header{b.headers, header} {
		for name, values := range h {
			req.Header[name] = values
		}
	}
	if form != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", formType)
	}
	if b.address != "" {
		req.RemoteAddr = b.address
	}
	for name, value := range b.cookies {
		req.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	b.web.ServeHTTP(w, req)
	res := w.Result()
	defer res.Body.Close()
	for _, c := range res.Cookies() {
		require.True(b.t, strings.HasPrefix(c.Name, "__Host-pf_"))
		require.True(b.t, c.Secure && c.HttpOnly && c.Path == "/" && c.Domain == "" && c.SameSite == http.SameSiteLaxMode, c)
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
			continue
		}
		require.LessOrEqual(b.t, c.MaxAge, 900)
		b.cookies[c.Name] = c.Value
	}
	return page{url: u, status: w.Code, header: w.Header(), body: w.Body.String()}
}

// follow goes where the pages' own host sends the browser.
func (b *browser) follow(p page) page {
	b.t.Helper()
	for range 5 {
		to := p.header.Get("Location")
		if p.status != http.StatusSeeOther || !strings.HasPrefix(to, "https://"+b.host+"/") {
			break
		}
		p = b.once(to)
	}
	return p
}

var (
	actionOf  = regexp.MustCompile(`<form[^>]* action="([^"]+)"`)
	hiddenOf  = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)"`)
	scopeOf   = regexp.MustCompile(`name="scope" type="checkbox" value="([^"]+)"( checked)?`)
	refreshOf = regexp.MustCompile(`<meta http-equiv="refresh" content="0;url=([^"]+)">`)
)

func (p page) action() string {
	if m := actionOf.FindStringSubmatch(p.body); m != nil {
		return html.UnescapeString(m[1])
	}
	return ""
}

func (p page) hidden() url.Values {
	out := url.Values{}
	for _, m := range hiddenOf.FindAllStringSubmatch(p.body, -1) {
		out.Set(m[1], html.UnescapeString(m[2]))
	}
	return out
}

// scopes are the tick boxes of the page.
func (p page) scopes() []string {
	var out []string
	for _, m := range scopeOf.FindAllStringSubmatch(p.body, -1) {
		out = append(out, html.UnescapeString(m[1]))
	}
	return out
}

// target is where a page sends the browser at once.
func (p page) target(t testing.TB) *url.URL {
	t.Helper()
	m := refreshOf.FindStringSubmatch(p.body)
	require.NotNil(t, m, p.body)
	u, err := url.Parse(html.UnescapeString(m[1]))
	require.NoError(t, err)
	return u
}

// text is the body as a User reads it.
func (p page) text() string { return html.UnescapeString(p.body) }

func ticked(names ...string) url.Values { return url.Values{"scope": names} }

// shows checks that the page is an error page of that status that tells title.
func (p page) shows(t testing.TB, status int, title string) {
	t.Helper()
	require.Equal(t, status, p.status, p.body)
	require.Contains(t, p.text(), title)
	require.Empty(t, p.header.Get("Location"))
}

// regexpOf is the first group of what pattern finds in text.
func regexpOf(t testing.TB, pattern, text string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, m, text)
	return html.UnescapeString(m[1])
}
