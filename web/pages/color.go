package pages

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
)

// color is in sRGB, each part from 0 to 255.
type color [3]uint8

// What text and lines lie on, as in pages.css: the harder of page and card for each
// scheme, which is the one nearer to the text's colour.
var (
	white     = color{255, 255, 255}
	black     = color{0, 0, 0}
	lightPage = color{0xf5, 0xf6, 0xf8}
	darkCard  = color{0x18, 0x1b, 0x20}
)

// Contrast ratios of WCAG 2: 1.4.3 for text, 1.4.11 for what marks a control.
const (
	textContrast    = 4.5
	controlContrast = 3
)

// BrandStylesheet sets the colours that come from a Company's accent colour
// ("#rrggbb"). Whatever it is, text on it and links in it can be read in both
// schemes. It is empty for what is no such colour.
func BrandStylesheet(accent string) []byte {
	c, err := parseColor(accent)
	if err != nil {
		return []byte{}
	}
	on, away := white, black
	if contrast(c, white) < textContrast {
		on, away = black, white // one of the two always has 4.58
	}
	var b strings.Builder
	fmt.Fprintf(&b, ":root{--accent:%s;--on-accent:%s;--accent-pressed:%s;", c, on, mix(c, away, 0.12))
	fmt.Fprintf(&b, "--accent-line:%s;--link:%s}\n", toward(c, black, lightPage, controlContrast), toward(c, black, lightPage, textContrast))
	fmt.Fprintf(&b, "@media (prefers-color-scheme:dark){:root{--accent-line:%s;--link:%s}}\n",
		toward(c, white, darkCard, controlContrast), toward(c, white, darkCard, textContrast))
	return []byte(b.String())
}

// toward mixes as little of end into c as gives the contrast to ground.
func toward(c, end, ground color, ratio float64) color {
	for step := range 101 {
		if m := mix(c, end, float64(step)/100); contrast(m, ground) >= ratio {
			return m
		}
	}
	return end
}

func mix(c, with color, share float64) color {
	var m color
	for i := range m {
		m[i] = uint8(math.Round(float64(c[i])*(1-share) + float64(with[i])*share))
	}
	return m
}

// contrast is WCAG's ratio, from 1 to 21.
func contrast(a, b color) float64 {
	x, y := a.luminance(), b.luminance()
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func (c color) luminance() float64 {
	linear := func(part uint8) float64 {
		v := float64(part) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c[0]) + 0.7152*linear(c[1]) + 0.0722*linear(c[2])
}

func (c color) String() string { return "#" + hex.EncodeToString(c[:]) }

func parseColor(s string) (color, error) {
	digits, ok := strings.CutPrefix(s, "#")
	if !ok || len(digits) != 6 {
		return color{}, fmt.Errorf("%q is not a colour such as #3454d1", s)
	}
	raw, err := hex.DecodeString(digits)
	if err != nil {
		return color{}, fmt.Errorf("%q is not a colour such as #3454d1", s)
	}
	return color(raw), nil
}
