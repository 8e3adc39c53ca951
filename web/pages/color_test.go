package pages

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// grounds are what texts and lines can lie on, as pages.css has them.
func grounds(t require.TestingT, scheme int) []color {
	schemes := strings.SplitN(string(rules), "prefers-color-scheme: dark", 2)
	require.Len(t, schemes, 2)
	var found []color
	for _, name := range []string{"page", "card", "sunk"} {
		m := regexp.MustCompile(`--` + name + `: (#[0-9a-f]{6});`).FindStringSubmatch(schemes[scheme])
		require.NotNil(t, m, name)
		c, err := parseColor(m[1])
		require.NoError(t, err)
		found = append(found, c)
	}
	return found
}

// variables reads a brand sheet: what it sets in light, and in dark.
func variables(t require.TestingT, sheet string) (light, dark map[string]color) {
	first, second, found := strings.Cut(sheet, "@media (prefers-color-scheme:dark)")
	require.True(t, found, sheet)
	read := func(s string) map[string]color {
		all := make(map[string]color)
		for _, m := range regexp.MustCompile(`--([a-z-]+):(#[0-9a-f]{6})`).FindAllStringSubmatch(s, -1) {
			c, err := parseColor(m[2])
			require.NoError(t, err)
			all[m[1]] = c
		}
		return all
	}
	return read(first), read(second)
}

func checkReadable(t require.TestingT, accent string) {
	light, dark := variables(t, string(BrandStylesheet(accent)))
	require.Equal(t, strings.ToLower(accent), light["accent"].String())
	for _, ground := range []string{"accent", "accent-pressed"} {
		require.GreaterOrEqual(t, contrast(light["on-accent"], light[ground]), textContrast, "%s: text on %s", accent, ground)
	}
	for scheme, vars := range []map[string]color{light, dark} {
		for _, ground := range grounds(t, scheme) {
			require.GreaterOrEqual(t, contrast(vars["link"], ground), textContrast, "%s: link on %s", accent, ground)
			require.GreaterOrEqual(t, contrast(vars["accent-line"], ground), float64(controlContrast), "%s: line on %s", accent, ground)
		}
	}
}

func TestBrandStylesheet_AnyColourCanBeRead(t *testing.T) {
	for _, accent := range []string{ourAccent, "#000000", "#ffffff", "#808080", "#777777", "#ffff00", "#FF0000", "#00ff00", "#0000ff"} {
		checkReadable(t, accent)
	}
	rapid.Check(t, func(t *rapid.T) {
		checkReadable(t, color{rapid.Byte().Draw(t, "red"), rapid.Byte().Draw(t, "green"), rapid.Byte().Draw(t, "blue")}.String())
	})
}

func TestBrandStylesheet_NoColour(t *testing.T) {
	for _, bad := range []string{"", "#fff", "3454d1", "#3454d1;", "#3454d", "#3454dg", "#3454d1}body{", "red", "#١٢٣"} {
		require.Empty(t, BrandStylesheet(bad), bad)
	}
}

// The fixed colours of pages.css are held to the same ratios.
func TestStylesheet_TextsCanBeRead(t *testing.T) {
	schemes := strings.SplitN(string(rules), "prefers-color-scheme: dark", 2)
	for scheme, css := range schemes {
		value := func(name string) color {
			m := regexp.MustCompile(`--` + name + `: (#[0-9a-f]{6});`).FindStringSubmatch(css)
			require.NotNil(t, m, name)
			c, err := parseColor(m[1])
			require.NoError(t, err)
			return c
		}
		for _, ground := range grounds(t, scheme) {
			for _, text := range []string{"ink", "soft"} {
				require.GreaterOrEqual(t, contrast(value(text), ground), textContrast, "%s in scheme %d", text, scheme)
			}
		}
		require.GreaterOrEqual(t, contrast(value("control"), value("card")), float64(controlContrast))
		for _, kind := range []string{"bad", "good", "warn"} {
			require.GreaterOrEqual(t, contrast(value(kind), value(kind+"-ground")), textContrast, "%s in scheme %d", kind, scheme)
			require.GreaterOrEqual(t, contrast(value(kind), value("card")), textContrast, "%s in scheme %d", kind, scheme)
		}
	}
}

func TestStylesheet_VersionIsItsContent(t *testing.T) {
	body, version := Stylesheet()
	again, same := Stylesheet()
	require.Equal(t, body, again)
	require.Equal(t, version, same)
	require.Regexp(t, `^[0-9a-f]{12}$`, version)
	require.NotContains(t, string(body), "url(", "it loads nothing")
	require.NotContains(t, string(body), "@import")
}
