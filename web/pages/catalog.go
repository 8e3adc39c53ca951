package pages

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/text/language"
)

//go:embed languages/*.json
var languageFiles embed.FS

// catalog has the texts of one language by key, with placeholders such as {agent}.
type catalog map[string]string

// part is a piece of a text. What stood for a placeholder is foreign.
type part struct {
	Text    string
	Foreign bool
}

// catalogs reads the language files once; they are part of the program and don't change.
var catalogs = sync.OnceValues(func() (map[language.Tag]catalog, error) {
	all := make(map[language.Tag]catalog)
	for _, lang := range supported() {
		raw, err := languageFiles.ReadFile("languages/" + lang.String() + ".json")
		if err != nil {
			return nil, err
		}
		var c catalog
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, fmt.Errorf("language %s: %w", lang, err)
		}
		all[lang] = c
	}
	return all, nil
})

// catalogOf has the texts of a supported language. New has seen that there are some.
func catalogOf(lang language.Tag) catalog {
	all, err := catalogs()
	if err != nil {
		return nil
	}
	return all[lang]
}

// fill puts values in the place of their names.
func (c catalog) fill(key string, values map[string]string) ([]part, error) {
	text, ok := c[key]
	if !ok {
		return nil, fmt.Errorf("there is no text %q", key)
	}
	var parts []part
	for text != "" {
		before, name, after := cutPlaceholder(text)
		if before != "" {
			parts = append(parts, part{Text: before})
		}
		if name != "" {
			value, ok := values[name]
			if !ok {
				return nil, fmt.Errorf("text %q wants {%s}, which the page does not have", key, name)
			}
			parts = append(parts, part{Text: value, Foreign: true})
		}
		text = after
	}
	return parts, nil
}

// say is fill for values of our own.
func (c catalog) say(key string, values map[string]string) (string, error) {
	parts, err := c.fill(key, values)
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String(), err
}

// cutPlaceholder splits a text around its first placeholder.
func cutPlaceholder(text string) (before, name, after string) {
	before, rest, found := strings.Cut(text, "{")
	if !found {
		return text, "", ""
	}
	name, after, _ = strings.Cut(rest, "}")
	return before, name, after
}

// placeholdersOf are the names in a text, in order of the alphabet.
func placeholdersOf(text string) []string {
	var names []string
	for text != "" {
		var name string
		if _, name, text = cutPlaceholder(text); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// check compares a language with what the pages use and with the English texts.
func (c catalog) check(used map[string]bool, english catalog) error {
	for _, key := range slices.Sorted(maps.Keys(used)) {
		if strings.TrimSpace(c[key]) == "" {
			return fmt.Errorf("text %q is missing", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c)) {
		if !used[key] {
			return fmt.Errorf("text %q is not used", key)
		}
		if got, want := placeholdersOf(c[key]), placeholdersOf(english[key]); !slices.Equal(got, want) {
			return fmt.Errorf("text %q has the placeholders %v, the English one %v", key, got, want)
		}
	}
	return nil
}
