package pages_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
	"golang.org/x/text/language"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/web/pages"
	"github.com/poppyfield/poppyfield/web/pages/pagestest"
)

const base = "https://auth.company.example"

func languages() []language.Tag {
	return []language.Tag{language.English, language.Spanish, language.German, language.French, language.Japanese}
}

func newRenderer(t *testing.T) *pages.Renderer {
	t.Helper()
	r, err := pages.New()
	require.NoError(t, err)
	return r
}

// write renders a page and returns its answer and its tree.
func write(t *testing.T, r *pages.Renderer, lang language.Tag, b pages.Brand, p pages.Page) (*httptest.ResponseRecorder, *html.Node) {
	t.Helper()
	w := httptest.NewRecorder()
	require.NoError(t, r.Write(w, http.StatusOK, lang, b, p, pages.Options{}))
	root, err := html.Parse(strings.NewReader(w.Body.String()))
	require.NoError(t, err)
	return w, root
}

func all(root *html.Node, names ...string) []*html.Node {
	var found []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && (len(names) == 0 || slices.Contains(names, n.Data)) {
			found = append(found, n)
		}
	}
	return found
}

func one(t *testing.T, root *html.Node, name string) *html.Node {
	t.Helper()
	found := all(root, name)
	require.Len(t, found, 1, name)
	return found[0]
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func eachPage(t *testing.T, check func(t *testing.T, s pagestest.Sample, lang language.Tag, root *html.Node)) {
	t.Helper()
	r := newRenderer(t)
	for _, s := range pagestest.Samples(base) {
		for _, lang := range languages() {
			t.Run(s.Name+"/"+lang.String(), func(t *testing.T) {
				_, root := write(t, r, lang, s.Brand, s.Page)
				check(t, s, lang, root)
			})
		}
	}
}

func TestWrite_SaysItsLanguageAndHasOneHeading(t *testing.T) {
	eachPage(t, func(t *testing.T, _ pagestest.Sample, lang language.Tag, root *html.Node) {
		require.Equal(t, lang.String(), attr(one(t, root, "html"), "lang"))
		require.Equal(t, "ltr", attr(one(t, root, "html"), "dir"))
		require.NotEmpty(t, text(one(t, root, "h1")))
		require.NotEmpty(t, text(one(t, root, "title")))
		for _, landmark := range []string{"header", "main"} {
			one(t, root, landmark)
		}
	})
}

func TestWrite_EveryInputHasALabel(t *testing.T) {
	eachPage(t, func(t *testing.T, _ pagestest.Sample, _ language.Tag, root *html.Node) {
		ids := make(map[string]int)
		labels := make(map[string]string)
		for _, n := range all(root) {
			if id := attr(n, "id"); id != "" {
				ids[id]++
			}
			if n.Data == "label" {
				labels[attr(n, "for")] = text(n)
			}
		}
		for id, count := range ids {
			require.Equal(t, 1, count, "id %s", id)
		}
		for _, n := range all(root, "input") {
			if attr(n, "type") == "hidden" {
				continue
			}
			require.NotEmpty(t, labels[attr(n, "id")], "label of %s", attr(n, "name"))
			for _, id := range strings.Fields(attr(n, "aria-describedby")) {
				require.Equal(t, 1, ids[id], "%s is described by %s", attr(n, "name"), id)
			}
		}
		for _, n := range all(root, "a") {
			if id, found := strings.CutPrefix(attr(n, "href"), "#"); found {
				require.Equal(t, 1, ids[id], "link to #%s", id)
			}
		}
	})
}

func TestWrite_NoScriptNoStyleNothingFromElsewhere(t *testing.T) {
	eachPage(t, func(t *testing.T, _ pagestest.Sample, _ language.Tag, root *html.Node) {
		require.Empty(t, all(root, "script", "style", "iframe", "object", "embed", "base"))
		for _, n := range all(root) {
			for _, a := range n.Attr {
				require.False(t, a.Key == "style" || strings.HasPrefix(a.Key, "on"), "%s on %s", a.Key, n.Data)
				switch a.Key {
				case "src", "action", "formaction", "srcset":
					require.Equal(t, base, origin(t, a.Val), "%s of %s", a.Key, n.Data)
				case "href":
					if n.Data == "link" {
						require.Equal(t, base, origin(t, a.Val), "stylesheet or icon")
					}
				}
			}
		}
		for _, n := range all(root, "a") {
			href := attr(n, "href")
			if strings.HasPrefix(href, "#") || origin(t, href) == base {
				continue
			}
			allowed := href == pagestest.Upstream || origin(t, href) == "https://company.example"
			require.True(t, allowed, "link to %s", href)
			if href != pagestest.Upstream {
				require.Contains(t, attr(n, "rel"), "noopener")
			}
		}
	})
}

func origin(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	return u.Scheme + "://" + u.Host
}

func TestWrite_FormsArePostedWithTheirToken(t *testing.T) {
	eachPage(t, func(t *testing.T, s pagestest.Sample, _ language.Tag, root *html.Node) {
		for _, form := range all(root, "form") {
			require.Equal(t, "post", attr(form, "method"))
			hidden := make(map[string]string)
			for _, n := range all(form, "input") {
				if attr(n, "type") == "hidden" {
					hidden[attr(n, "name")] = attr(n, "value")
				}
			}
			if _, connected := s.Page.(pages.ConnectedAgents); connected {
				require.Equal(t, map[string]string{"link": "link-token"}, hidden)
			} else {
				require.Equal(t, map[string]string{"csrf": "csrf-token"}, hidden)
			}
		}
	})
}

func TestWrite_NamesTheAgentWithItsHost(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#7")
	eachPage(t, func(t *testing.T, s pagestest.Sample, _ language.Tag, root *html.Node) {
		switch s.Page.(type) {
		case pages.Login, pages.Code, pages.Leave, pages.Consent, pages.Done:
			if s.Name != "consent-long" {
				require.Contains(t, text(one(t, root, "main")), "Example Agent · agent.example")
			}
		default:
		}
	})
}

func TestWrite_ConsentShowsEachScopeWithATickBox(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#9", "poppy-0.1/4.5#10")
	_, root := write(t, newRenderer(t), language.English, pages.Brand{Company: "Example Company", Base: base}, pages.Consent{
		Agent: pages.Agent{Name: "Example Agent", Host: "agent.example"}, Account: "mia@example.com", UserCode: "WDJB-MJHT",
		Form:     pages.Form{Action: base + "/sign-in/sgn_1", Token: "csrf-token"},
		Scopes:   []pages.Scope{{Name: "poppy:read", Text: "See it", Ticked: true}, {Name: "addresses", Text: "Use addresses"}},
		Withheld: []string{"Change it"},
	})
	var boxes, values []string
	for _, n := range all(root, "input") {
		if attr(n, "type") == "checkbox" {
			boxes = append(boxes, attr(n, "name")+"="+attr(n, "value"))
			require.Equal(t, attr(n, "value") == "poppy:read", has(n, "checked"))
		}
	}
	for _, n := range all(root, "button") {
		if !has(n, "hidden") {
			values = append(values, attr(n, "name")+"="+attr(n, "value"))
		}
	}
	require.Equal(t, []string{"scope=poppy:read", "scope=addresses"}, boxes)
	require.Equal(t, []string{"action=restart", "action=approve", "action=decline"}, values)
	body := text(one(t, root, "main"))
	for _, want := range []string{"Change it", "See your password", "mia@example.com", "WDJB-MJHT", "Only go on if you started this yourself"} {
		require.Contains(t, body, want)
	}
	require.Contains(t, text(one(t, root, "legend")), "What Example Agent may do")
}

func TestWrite_ConsentOfAClientThatIsNoAgent(t *testing.T) {
	consent := pages.Consent{Agent: pages.Agent{Name: "Example Tool", Host: "127.0.0.1"}, Server: "mcp.company.example"}
	said := func() string {
		_, root := write(t, newRenderer(t), language.English, pages.Brand{Base: base}, consent)
		return text(one(t, root, "main"))
	}
	const isNone = "This is not a personal agent"
	for _, want := range []string{isNone, "mcp.company.example and nowhere else", "Only go on if you started this yourself"} {
		require.Contains(t, said(), want)
	}
	consent.Server = ""
	require.NotContains(t, said(), isNone)
}

func TestWrite_EnterInATickBoxDecidesNothing(t *testing.T) {
	_, root := write(t, newRenderer(t), language.English, pages.Brand{Base: base}, pages.Consent{Scopes: []pages.Scope{{Name: "a", Text: "A"}}})
	for _, form := range all(root, "form") {
		if len(all(form, "fieldset")) == 0 {
			continue
		}
		first := all(form, "button")[0] // the one that Enter presses
		require.Equal(t, "dialog", attr(first, "formmethod"))
		require.False(t, has(first, "name"))
		return
	}
	t.Fatal("no form with scopes")
}

func TestWrite_ProblemIsTiedToItsInput(t *testing.T) {
	r := newRenderer(t)
	for _, s := range pagestest.Samples(base) {
		id, wrong := map[string]string{
			"login-wrong": "field-0", "code-wrong": "code", "consent-nothing": "scope-0", "device-unknown": "user-code",
		}[s.Name]
		if !wrong {
			continue
		}
		_, root := write(t, r, language.English, s.Brand, s.Page)
		require.True(t, strings.HasPrefix(text(one(t, root, "title")), "Error: "), s.Name)
		var linked, invalid bool
		for _, n := range all(root) {
			linked = linked || attr(n, "href") == "#"+id
			if attr(n, "id") == id {
				invalid = attr(n, "aria-invalid") == "true" && slices.Contains(strings.Fields(attr(n, "aria-describedby")), "problem")
			}
		}
		require.True(t, linked && invalid, s.Name)
	}
}

func TestWrite_FieldsTellBrowsersWhatTheyAre(t *testing.T) {
	_, root := write(t, newRenderer(t), language.English, pages.Brand{Base: base}, pages.Login{Fields: []pages.Field{
		{Name: "workEmail", Label: "Email", Value: "mia@example.com"},
		{Name: "phone", Label: "Phone"},
		{Name: "password", Label: "Password", Secret: true, Value: "never shown"},
		{Name: "pin", Label: "PIN", Secret: true},
		{Name: "one_time_code", Label: "Code", Secret: true},
	}})
	var got []string
	for _, n := range all(root, "input") {
		if attr(n, "type") != "hidden" {
			got = append(got, strings.Join([]string{attr(n, "name"), attr(n, "type"), attr(n, "autocomplete"), attr(n, "inputmode"), attr(n, "value")}, " "))
		}
	}
	require.Equal(t, []string{
		"field.workEmail text username email mia@example.com",
		"field.phone text off tel ",
		"field.password password current-password text ",
		"field.pin password off numeric ",
		"field.one_time_code text one-time-code text ",
	}, got)
}

func TestWrite_LeaveGoesByItselfAndByLink(t *testing.T) {
	for _, s := range pagestest.Samples(base) {
		if s.Name != "leave" {
			continue
		}
		_, root := write(t, newRenderer(t), language.English, s.Brand, s.Page)
		var targets []string
		for _, n := range all(root, "meta", "a") {
			if attr(n, "http-equiv") == "refresh" {
				targets = append(targets, attr(n, "content"))
			} else if n.Data == "a" && attr(n, "target") == "" {
				targets = append(targets, attr(n, "href"))
			}
		}
		require.Equal(t, []string{"0;url=" + pagestest.Upstream, pagestest.Upstream}, targets)
	}
}

func TestWrite_TimesAreInTheLanguageAndForMachines(t *testing.T) {
	want := map[language.Tag]string{
		language.English:  "2 October 2026, 16:05 UTC",
		language.Spanish:  "2 de octubre de 2026, 16:05 UTC",
		language.German:   "2. Oktober 2026, 16:05 UTC",
		language.French:   "2 octobre 2026, 16:05 UTC",
		language.Japanese: "2026年10月2日 16:05 UTC",
	}
	eachPage(t, func(t *testing.T, s pagestest.Sample, lang language.Tag, root *html.Node) {
		if s.Name != "agents" {
			return
		}
		first := all(root, "time")[0]
		require.Equal(t, want[lang], text(first))
		require.Equal(t, "2026-10-02T16:05:00Z", attr(first, "datetime"))
	})
}

func TestWrite_PageThatIsNotOurs(t *testing.T) {
	r := newRenderer(t)
	w := httptest.NewRecorder()
	require.Error(t, r.Write(w, http.StatusOK, language.English, pages.Brand{}, &pages.Done{}, pages.Options{}))
	require.Error(t, r.Write(w, http.StatusOK, language.English, pages.Brand{}, pages.Failure{Reason: "unheard of"}, pages.Options{}))
	require.Empty(t, w.Body.String())
}

func TestWrite_LanguageThatWeDoNotHave(t *testing.T) {
	r := newRenderer(t)
	for lang, want := range map[string]string{"de-AT": "de", "es-419": "es", "zh": "en", "und": "en", "fr-CA-u-ca-gregory": "fr"} {
		w, root := write(t, r, language.Make(lang), pages.Brand{Base: base}, pages.Done{})
		require.Equal(t, want, attr(one(t, root, "html"), "lang"), lang)
		require.Equal(t, want, w.Header().Get("Content-Language"), lang)
	}
}
