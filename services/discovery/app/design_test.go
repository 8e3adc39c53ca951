package app_test

import (
	"bytes"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// picture is an empty picture of a size.
func picture(t testing.TB, kind string, width, height int) []byte {
	t.Helper()
	var out bytes.Buffer
	img := image.NewGray(image.Rect(0, 0, width, height))
	switch kind {
	case "png":
		require.NoError(t, png.Encode(&out, img))
	case "jpeg":
		require.NoError(t, jpeg.Encode(&out, img, nil))
	case "gif":
		require.NoError(t, gif.Encode(&out, img, nil))
	}
	return out.Bytes()
}

func TestUpdateDesign_Logo(t *testing.T) {
	r := newRig(t)
	scope, c := r.company(t, "noodle")
	r.told()
	for _, want := range []struct {
		raw  []byte
		kind string
	}{{picture(t, "png", 2048, 1), "image/png"}, {picture(t, "jpeg", 8, 2048), "image/jpeg"}, {nil, ""}} {
		got, err := r.UpdateDesign(t.Context(), scope, app.DesignChange{Logo: &want.raw})
		require.NoError(t, err)
		require.Equal(t, want.kind, got.Logo.Type)
		require.Equal(t, want.raw == nil, got.Logo.Version == "")
		logo, err := r.Logo(t.Context(), scope)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want.raw, logo.Bytes))
		require.Equal(t, got.Logo.Version, logo.Version)
		require.Equal(t, []string{c.ID}, r.told())
	}
}

func TestUpdateDesign_LogosRefused(t *testing.T) {
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	small := picture(t, "png", 8, 8)
	_, err := r.UpdateDesign(t.Context(), scope, app.DesignChange{Logo: &small})
	require.NoError(t, err)
	for name, raw := range map[string][]byte{
		"SVG": []byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`), "GIF": picture(t, "gif", 8, 8),
		"HTML": []byte("<html>"), "WebP": []byte("RIFF\x00\x00\x00\x00WEBPVP8 "), "too wide": picture(t, "png", 2049, 1), "too high": picture(t, "jpeg", 1, 2049),
		"PNG cut": small[:20], "JPEG cut": []byte("\xff\xd8\xff\xe0"), "too large": append(bytes.Clone(small), make([]byte, app.MaxLogo)...),
		"GIF that says PNG": append([]byte("\x89PNG\r\n\x1a\n"), picture(t, "gif", 8, 8)...), "space": []byte(" "),
	} {
		for _, validateOnly := range []bool{true, false} {
			_, err := r.UpdateDesign(t.Context(), scope, app.DesignChange{Logo: &raw, ValidateOnly: validateOnly})
			require.True(t, problem.Is(err, problem.InvalidRequest), name)
			requireReason(t, err, problem.InvalidRequest, "page_design.logo")
		}
	}
	logo, err := r.Logo(t.Context(), scope)
	require.NoError(t, err)
	require.Equal(t, small, logo.Bytes)
}

func TestUpdateDesign_NamesTheFieldAtFault(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.4#17")
	texts := func(tag, text string) *map[string]string { return &map[string]string{tag: text} }
	scopes := func(scope, tag, text string) *map[string]map[string]string {
		return &map[string]map[string]string{scope: {tag: text}}
	}
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	r.told()
	for name, c := range map[string]struct {
		change app.DesignChange
		field  string
	}{
		"colour by name":        {app.DesignChange{AccentColor: to("red")}, "accent_color"},
		"colour with more":      {app.DesignChange{AccentColor: to("#aabbcc;}")}, "accent_color"},
		"support is http":       {app.DesignChange{SupportURL: to("http://noodle.example")}, "support_url"},
		"privacy is script":     {app.DesignChange{PrivacyURL: to("javascript:alert(1)")}, "privacy_url"},
		"terms is no URL":       {app.DesignChange{TermsURL: to("terms")}, "terms_url"},
		"welcome with control":  {app.DesignChange{Welcome: texts("", "a\x07b")}, "welcome."},
		"welcome with a line":   {app.DesignChange{Welcome: texts("de", "a\nb")}, "welcome.de"},
		"welcome too long":      {app.DesignChange{Welcome: texts("de", strings.Repeat("ü", 301))}, "welcome.de"},
		"welcome says nothing":  {app.DesignChange{Welcome: texts("de", " ")}, "welcome.de"},
		"tag with underscore":   {app.DesignChange{Welcome: texts("de_AT", "Hallo")}, "welcome.de_AT"},
		"tag of one letter":     {app.DesignChange{Welcome: texts("d", "Hallo")}, "welcome.d"},
		"tag is a star":         {app.DesignChange{Welcome: texts("*", "Hallo")}, "welcome.*"},
		"tag with long part":    {app.DesignChange{Welcome: texts("de-abcdefghi", "Hallo")}, "welcome.de-abcdefghi"},
		"tag twice":             {app.DesignChange{Welcome: &map[string]string{"de-AT": "a", "de-at": "b"}}, "welcome.de-at"},
		"text of no scope":      {app.DesignChange{ScopeTexts: scopes("a b", "", "x")}, "scope_texts.a b"},
		"text of a new poppy:":  {app.DesignChange{ScopeTexts: scopes("poppy:admin", "", "x")}, "scope_texts.poppy:admin"},
		"scope's text too long": {app.DesignChange{ScopeTexts: scopes("poppy:read", "", strings.Repeat("x", 301))}, "scope_texts.poppy:read.texts."},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.UpdateDesign(t.Context(), scope, c.change)
			requireReason(t, err, problem.InvalidRequest, "page_design."+c.field)
			d, err := r.Design(t.Context(), scope)
			require.NoError(t, err)
			require.Zero(t, d)
			require.Empty(t, r.told())
		})
	}
}

func TestUpdateDesign_ETagAndValidateOnly(t *testing.T) {
	r := newRig(t)
	scope, c := r.company(t, "noodle")
	change := app.DesignChange{AccentColor: to("#A1b2c3"), Welcome: &map[string]string{"": "Hi", "zh-Hant-TW": "你好"}, ETag: resource.ETag(0), ValidateOnly: true}
	got, err := r.UpdateDesign(t.Context(), scope, change)
	require.NoError(t, err)
	require.Equal(t, "#A1b2c3", got.AccentColor)
	got, err = r.Design(t.Context(), scope)
	require.NoError(t, err)
	require.Zero(t, got)
	change.ValidateOnly = false
	got, err = r.UpdateDesign(t.Context(), scope, change)
	require.NoError(t, err)
	require.Equal(t, int64(1), got.Version)
	require.Equal(t, c.Version+1, r.state(t, scope).Version)
	_, err = r.UpdateDesign(t.Context(), scope, change)
	requireReason(t, err, problem.EtagMismatch)
	got, err = r.UpdateDesign(t.Context(), scope, app.DesignChange{Welcome: &map[string]string{}})
	require.NoError(t, err)
	require.Empty(t, got.Welcome)
	require.Equal(t, "#A1b2c3", got.AccentColor, "what isn't named stays")
}
