package pages

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"strconv"

	"golang.org/x/text/language"
)

//go:embed templates/*.html
var templateFiles embed.FS

// names are the pages, each with a template file of its name.
func names() []string {
	return []string{
		Login{}.name(), Code{}.name(), Leave{}.name(), Consent{}.name(),
		DeviceCode{}.name(), Done{}.name(), Failure{}.name(), ConnectedAgents{}.name(),
	}
}

// A Renderer writes pages. It is safe for concurrent use.
type Renderer struct {
	templates map[string]*template.Template
	version   string
}

// New reads the templates and language files that are built in. It fails when a text
// is missing in a language, is used by no page, or has other placeholders than in
// English, so that no User ever meets a hole.
func New() (*Renderer, error) {
	_, version := Stylesheet()
	r := &Renderer{templates: make(map[string]*template.Template), version: version}
	keys := fixedKeys()
	for _, name := range names() {
		t, err := template.ParseFS(templateFiles, "templates/layout.html", "templates/"+name+".html")
		if err != nil {
			return nil, fmt.Errorf("template of page %s: %w", name, err)
		}
		r.templates[name] = t
		collectKeys(keys, t)
	}
	if _, err := catalogs(); err != nil {
		return nil, err
	}
	for _, lang := range supported() {
		if err := catalogOf(lang).check(keys, catalogOf(language.English)); err != nil {
			return nil, fmt.Errorf("language %s: %w", lang, err)
		}
	}
	return r, nil
}

// Options are about how a page may be used.
type Options struct {
	// FrameAncestors are the origins that may show the page in a frame, in the form of
	// CSP's source expressions; without any, none may.
	FrameAncestors []string
	// ToDevice: where the answer's redirect may leave for the agent's site, it may also lead
	// to a program on the User's own device.
	ToDevice bool
	// AssetOrigin is where styles and pictures come from, for a page that is shown at
	// another origin than that of its brand's Base.
	AssetOrigin string
}

// Write answers with a page, in the supported language nearest to lang. Nothing is
// written when it returns an error that came before the answer began.
func (r *Renderer) Write(w http.ResponseWriter, status int, lang language.Tag, b Brand, p Page, o Options) error {
	lang = nearest(lang)
	v, err := newView(r.version, lang, b, p)
	if err != nil {
		return err
	}
	var body bytes.Buffer
	if err := r.templates[p.name()].ExecuteTemplate(&body, "page", v); err != nil {
		return fmt.Errorf("page %s: %w", p.name(), err)
	}
	if err := setHeaders(w.Header(), mayLeave(p), o); err != nil {
		return err
	}
	w.Header().Set("Content-Language", lang.String())
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	_, err = body.WriteTo(w)
	return err
}
