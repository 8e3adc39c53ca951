package pages

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/language"
)

func TestCatalogs_EveryLanguageHasEveryText(t *testing.T) {
	_, err := New() // compares each with the templates
	require.NoError(t, err)
	english := slices.Sorted(maps.Keys(catalogOf(language.English)))
	for _, lang := range supported() {
		require.Equal(t, english, slices.Sorted(maps.Keys(catalogOf(lang))), lang.String())
	}
	entries, err := languageFiles.ReadDir("languages")
	require.NoError(t, err)
	require.Len(t, entries, len(supported()))
}

func TestCatalogs_NothingWasLeftInEnglish(t *testing.T) {
	// Words that are the same in another language.
	same := []string{"test.badge", "footer.label", "code.label", "device.label", "done.approved", "agents.connected", "date", "date.time", "error"}
	english := catalogOf(language.English)
	for _, lang := range supported()[1:] {
		for key, text := range catalogOf(lang) {
			if text == english[key] && !slices.Contains(same, key) && key[:min(6, len(key))] != "month." {
				t.Errorf("%s: %q is %q as in English", lang, key, text)
			}
		}
	}
}

func TestCatalogCheck(t *testing.T) {
	english := catalog{"a": "Of {company}", "b": "B"}
	used := map[string]bool{"a": true, "b": true}
	require.NoError(t, catalog{"a": "{company}s", "b": "b"}.check(used, english))
	require.ErrorContains(t, catalog{"a": "{company}s"}.check(used, english), "missing")
	require.ErrorContains(t, catalog{"a": "{company}s", "b": " "}.check(used, english), "missing")
	require.ErrorContains(t, catalog{"a": "{company}s", "b": "b", "c": "c"}.check(used, english), "not used")
	require.ErrorContains(t, catalog{"a": "{firma}s", "b": "b"}.check(used, english), "placeholders")
	require.ErrorContains(t, catalog{"a": "s", "b": "b"}.check(used, english), "placeholders")
}

func TestCatalogFill(t *testing.T) {
	c := catalog{"k": "{a} and {b}{a}."}
	parts, err := c.fill("k", map[string]string{"a": "{b}", "b": "2"})
	require.NoError(t, err)
	require.Equal(t, []part{{"{b}", true}, {" and ", false}, {"2", true}, {"{b}", true}, {".", false}}, parts, "values are not filled in again")
	_, err = c.fill("k", map[string]string{"a": "1"})
	require.Error(t, err)
	_, err = c.fill("other", nil)
	require.Error(t, err)
}
