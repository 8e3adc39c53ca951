package demo

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"sync/atomic"
	"time"
)

//go:embed pages
var pages embed.FS

// A Website is the shop's public site. Its /.well-known/poppy.json redirects to where
// the document is hosted, as section 3 of the protocol allows.
type Website struct {
	domain string
	shop   *shop
	now    func() time.Time
	views  *template.Template
	style  []byte
	target atomic.Pointer[string]
}

// newWebsite makes the site of domain; its poppy.json is not found until SetTarget was called.
func newWebsite(domain string, shop *shop, now func() time.Time) (*Website, error) {
	views, err := template.New("").Funcs(template.FuncMap{
		"clock": func(t time.Time) string { return t.Format("15:04") },
	}).ParseFS(pages, "pages/*.html")
	if err != nil {
		return nil, fmt.Errorf("website templates: %w", err)
	}
	style, err := pages.ReadFile("pages/style.css")
	if err != nil {
		return nil, fmt.Errorf("website style: %w", err)
	}
	return &Website{domain: domain, shop: shop, now: now, views: views, style: style}, nil
}

// SetTarget sets the https URL that poppy.json redirects to.
func (s *Website) SetTarget(url string) { s.target.Store(&url) }

// Mount adds the site's routes to mux.
func (s *Website) Mount(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", s.page("home.html"))
	mux.HandleFunc("GET /orders", s.page("orders.html"))
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		w.Header().Set("Cache-Control", "max-age=300")
		_, _ = w.Write(s.style)
	})
	mux.HandleFunc("GET /.well-known/poppy.json", s.redirect)
}

func (s *Website) redirect(w http.ResponseWriter, r *http.Request) {
	target := s.target.Load()
	if target == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Cache-Control", "no-cache")
	http.Redirect(w, r, *target, http.StatusFound)
}

type view struct {
	Domain  string
	Menu    []Dish
	Orders  []Order
	Account *accountView // nil when nobody is signed in
	Failed  bool         // a sign-in did
	Visit   *visitView   // of the page that says who is visiting
}

func (s *Website) page(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		s.write(w, http.StatusOK, name, view{Menu: s.shop.menu, Orders: s.local(s.shop.orders(s.now()))}, "")
	}
}

// local puts the times of orders in the shop's zone.
func (s *Website) local(orders []Order) []Order {
	for i := range orders {
		orders[i].Placed, orders[i].Due = orders[i].Placed.In(s.shop.zone), orders[i].Due.In(s.shop.zone)
	}
	return orders
}

// write answers with a page, which may show a frame of one other origin.
func (s *Website) write(w http.ResponseWriter, status int, name string, v view, frame string) {
	v.Domain = s.domain
	var out bytes.Buffer
	if err := s.views.ExecuteTemplate(&out, name, v); err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	policy := "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	cache := "no-cache"
	if frame != "" {
		policy += "; frame-src " + frame
	}
	if v.Account != nil || v.Visit != nil {
		cache = "no-store"
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", cache)
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}
