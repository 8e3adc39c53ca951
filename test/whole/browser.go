package whole

import (
	"context"
	"errors"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// A Browser is a User's: it keeps cookies, and sends forms. It follows redirects until
// they lead away from the installation.
type Browser struct {
	client  *http.Client
	cookies map[string]string
	record  *Recorder
}

// NewBrowser makes a browser without cookies.
func (e Everybody) NewBrowser() *Browser {
	return &Browser{client: e.Client, cookies: map[string]string{}, record: e.Recorder}
}

// A View is a page, or where the browser was sent to away from the issuer.
type View struct {
	Status int
	URL    *url.URL
	HTML   string
	Left   *url.URL
}

const ofPage = "a page's "

// OfPages are the kinds that pages show to the browser they are for, such as what it typed.
func OfPages() []string { return []string{ofPage + "csrf", ofPage + "link", "user_code"} }

// Open opens an address of issuer.
func (b *Browser) Open(ctx context.Context, issuer, address string) (View, error) {
	return b.send(ctx, issuer, http.MethodGet, address, nil)
}

// Submit sends the first form of a page with further values.
func (b *Browser) Submit(ctx context.Context, issuer string, v View, values url.Values) (View, error) {
	action := formAction.FindStringSubmatch(v.HTML)
	if action == nil {
		return View{}, errors.New("the page has no form: " + v.HTML)
	}
	to, err := v.URL.Parse(html.UnescapeString(action[1]))
	if err != nil {
		return View{}, err
	}
	form := url.Values{}
	for _, tag := range inputTag.FindAllString(v.HTML, -1) {
		a := map[string]string{}
		for _, m := range attribute.FindAllStringSubmatch(tag, -1) {
			a[m[1]] = html.UnescapeString(m[2])
		}
		if a["type"] == "hidden" {
			form.Set(a["name"], a["value"])
			b.record.keep(ofPage+a["name"], a["value"])
		}
	}
	for name, list := range values {
		form[name] = list
	}
	return b.send(ctx, issuer, http.MethodPost, to.String(), form)
}

var (
	formAction = regexp.MustCompile(`<form[^>]* action="([^"]*)"`)
	inputTag   = regexp.MustCompile(`<input[^>]*>`)
	attribute  = regexp.MustCompile(`([a-z-]+)="([^"]*)"`)
)

func (b *Browser) send(ctx context.Context, issuer, method, address string, form url.Values) (View, error) {
	for range 10 {
		at, err := url.Parse(address)
		if err != nil {
			return View{}, err
		}
		if !strings.HasPrefix(address, issuer+"/") {
			return View{Left: at}, nil
		}
		r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(form.Encode()))
		if err != nil {
			return View{}, err
		}
		if method == http.MethodPost {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Origin", at.Scheme+"://"+at.Host)
		}
		for name, value := range b.cookies {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		answer, err := do(b.client, r)
		if err != nil {
			return View{}, err
		}
		for _, c := range (&http.Response{Header: answer.Header}).Cookies() {
			b.record.keep("cookie", c.Value)
			b.cookies[c.Name] = c.Value
		}
		if answer.Status != http.StatusSeeOther {
			return View{Status: answer.Status, URL: at, HTML: string(answer.Body)}, nil
		}
		next, err := at.Parse(answer.Header.Get("Location"))
		if err != nil {
			return View{}, err
		}
		b.record.keep("an authorization code", next.Query().Get("code"))
		method, address, form = http.MethodGet, next.String(), nil
	}
	return View{}, errors.New("redirects without end")
}
