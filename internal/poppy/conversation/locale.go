package conversation

import "strings"

const maxLanguageTag = 255 // octets; the grammar of RFC 5646 has no limit of its own

// isLanguageTag reports whether tag is well-formed by RFC 5646 section 2.2.9: it
// follows the grammar of section 2.1. Whether its subtags are registered is not asked.
func isLanguageTag(tag string) bool {
	if tag == "" || len(tag) > maxLanguageTag {
		return false
	}
	tag = strings.ToLower(tag)
	if isIrregularTag(tag) {
		return true
	}
	subtags := strings.Split(tag, "-")
	for _, s := range subtags {
		if len(s) == 0 || len(s) > 8 || !isAlnum(s) {
			return false
		}
	}
	if subtags[0] == "x" {
		return len(subtags) > 1
	}
	rest, ok := cutLanguage(subtags)
	if !ok {
		return false
	}
	rest = cutSubtags(rest, 1, isScript)
	rest = cutSubtags(rest, 1, isRegion)
	rest = cutSubtags(rest, len(rest), isVariant)
	return isExtensions(rest)
}

// cutLanguage takes the language and its extended language subtags.
func cutLanguage(subtags []string) ([]string, bool) {
	language := subtags[0]
	if len(language) < 2 || !isAlpha(language) {
		return nil, false
	}
	if len(language) > 3 {
		return subtags[1:], true
	}
	return cutSubtags(subtags[1:], 3, func(s string) bool { return len(s) == 3 && isAlpha(s) }), true
}

// cutSubtags takes up to limit leading subtags that fit.
func cutSubtags(subtags []string, limit int, fits func(string) bool) []string {
	for limit > 0 && len(subtags) > 0 && fits(subtags[0]) {
		subtags, limit = subtags[1:], limit-1
	}
	return subtags
}

func isScript(s string) bool { return len(s) == 4 && isAlpha(s) }

func isRegion(s string) bool {
	return len(s) == 2 && isAlpha(s) || len(s) == 3 && isDigits(s)
}

func isVariant(s string) bool { return len(s) >= 5 || len(s) == 4 && isDigits(s[:1]) }

// isExtensions checks what follows the variants: singletons with at least one
// subtag of two or more characters each, then private use.
func isExtensions(subtags []string) bool {
	for len(subtags) > 0 {
		if len(subtags[0]) != 1 {
			return false
		}
		if subtags[0] == "x" {
			return len(subtags) > 1
		}
		rest := cutSubtags(subtags[1:], len(subtags), func(s string) bool { return len(s) > 1 })
		if len(rest) == len(subtags)-1 {
			return false
		}
		subtags = rest
	}
	return true
}

// isIrregularTag reports the grandfathered tags that don't follow the grammar of langtag.
func isIrregularTag(tag string) bool {
	switch tag {
	case "en-gb-oed", "i-ami", "i-bnn", "i-default", "i-enochian", "i-hak", "i-klingon", "i-lux", "i-mingo",
		"i-navajo", "i-pwn", "i-tao", "i-tay", "i-tsu", "sgn-be-fr", "sgn-be-nl", "sgn-ch-de":
		return true
	}
	return false
}

func isAlpha(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < 'a' || r > 'z' })
}

func isDigits(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}

func isAlnum(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}
