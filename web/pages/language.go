package pages

import (
	"slices"
	"strings"

	"golang.org/x/text/language"
)

// supported are the languages that there is a file of; the first is for whoever speaks
// none of them.
func supported() []language.Tag {
	return []language.Tag{language.English, language.Spanish, language.German, language.French, language.Japanese}
}

var ours = language.NewMatcher(supported())

// Longer wishes are not worth reading: no User speaks that many languages.
const maxWishes = 1000

// Match is the language for a User: the first of uiLocales (OpenID Connect's
// ui_locales, tags by preference with spaces between) that we have, else what the
// browser's Accept-Language asks for, else English. What can't be read is passed over.
func Match(uiLocales, acceptLanguage string) language.Tag {
	if len(uiLocales) <= maxWishes {
		var wishes []language.Tag
		for _, s := range strings.Fields(uiLocales) {
			if tag, err := language.Parse(s); err == nil {
				wishes = append(wishes, tag)
			}
		}
		if i, ok := match(ours, wishes); ok {
			return supported()[i]
		}
	}
	if len(acceptLanguage) <= maxWishes {
		if wishes, _, err := language.ParseAcceptLanguage(acceptLanguage); err == nil {
			if i, ok := match(ours, wishes); ok {
				return supported()[i]
			}
		}
	}
	return language.English
}

func nearest(lang language.Tag) language.Tag {
	if i, ok := match(ours, []language.Tag{lang}); ok {
		return supported()[i]
	}
	return language.English
}

// match returns the index of the matcher's language that fits the wishes.
func match(m language.Matcher, wishes []language.Tag) (int, bool) {
	// A User who wants no language in particular ("*") gets the next rule's.
	wishes = slices.DeleteFunc(wishes, func(t language.Tag) bool { return t == language.Und })
	_, index, confidence := m.Match(wishes...)
	return index, confidence != language.No
}

// Text picks from a Company's texts by language tag the one for lang, else the one
// for any language (""). It is empty when there is neither; tags that can't be read
// are passed over.
func Text(lang language.Tag, texts map[string]string) string {
	var have []language.Tag
	var found []string
	for _, key := range sortedTags(texts) {
		if tag, err := language.Parse(key); err == nil && tag != language.Und {
			have = append(have, tag)
			found = append(found, texts[key])
		}
	}
	if i, ok := match(language.NewMatcher(have), []language.Tag{lang}); ok {
		return found[i]
	}
	return texts[""]
}

// sortedTags are the tags of texts that say something, the same ones in the same order
// whatever the order of the map.
func sortedTags(texts map[string]string) []string {
	tags := make([]string, 0, len(texts))
	for tag, text := range texts {
		if tag != "" && text != "" {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return tags
}

// The protocol's own scopes (Poppy 4.4).
const (
	readScope   = "poppy:read"
	writeScope  = "poppy:write"
	scopePrefix = "scope."
)

// ScopeText is what we say about one of the protocol's own scopes, as a thing to do
// ("See …"); other scopes are the Company's to describe, and are empty here.
func ScopeText(lang language.Tag, scope string) string {
	return catalogOf(nearest(lang))[scopePrefix+scope]
}
