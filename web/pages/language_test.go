package pages_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/language"

	"github.com/poppyfield/poppyfield/web/pages"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct{ uiLocales, acceptLanguage, want string }{
		{"", "", "en"},
		{"", "de", "de"},
		{"", "de-CH,fr;q=0.8", "de"},
		{"", "fr;q=0.5, ja;q=0.9", "ja"},
		{"", "nl, es;q=0.3", "es"},
		{"", "*", "en"},
		{"", "zh-CN,zh", "en"},
		{"", "pt-BR", "en"},
		{"", "de;q=0, fr", "fr"},
		{"", "definitely not a header;;q=x", "en"},
		{"fr", "de", "fr"},
		{"nl fr-CA de", "es", "fr"},
		{"x-klingon !!! ja", "de", "ja"},
		{"nl zh", "de", "de"},
		{"und", "es", "es"},
		{"EN-us", "de", "en"},
		{strings.Repeat("fr ", 1000), "de", "de"},
		{strings.Repeat("-", 5000), strings.Repeat("a-", 5000), "en"},
	} {
		require.Equal(t, c.want, pages.Match(c.uiLocales, c.acceptLanguage).String(), "%.40q %.40q", c.uiLocales, c.acceptLanguage)
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("", "")
	f.Add("de en", "fr;q=0.5, ja")
	f.Add("de-u-co-phonebk x-y", "*;q=0.1,en-US-x-twain")
	f.Fuzz(func(t *testing.T, uiLocales, acceptLanguage string) {
		require.Contains(t, languages(), pages.Match(uiLocales, acceptLanguage))
	})
}

func TestText(t *testing.T) {
	texts := map[string]string{"": "any", "de": "deutsch", "pt-BR": "brasileiro", "not a tag": "?", "fr": ""}
	for lang, want := range map[string]string{"de": "deutsch", "de-AT": "deutsch", "pt": "brasileiro", "ja": "any", "fr": "any", "und": "any"} {
		require.Equal(t, want, pages.Text(language.Make(lang), texts), lang)
	}
	require.Empty(t, pages.Text(language.German, map[string]string{"ja": "日本語"}))
	require.Empty(t, pages.Text(language.German, nil))
}

func TestScopeText_OnlyTheProtocolsOwn(t *testing.T) {
	for _, lang := range languages() {
		require.NotEmpty(t, pages.ScopeText(lang, "poppy:read"))
		require.NotEmpty(t, pages.ScopeText(lang, "poppy:write"))
		require.Empty(t, pages.ScopeText(lang, "addresses"))
	}
	require.Equal(t, "See the information in your account", pages.ScopeText(language.Swahili, "poppy:read"))
}
