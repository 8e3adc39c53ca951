package pages

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
)

//go:embed pages.css
var rules []byte

// ourAccent is the colour of a Company that has chosen none.
const ourAccent = "#3454d1"

// Stylesheet is what every page links as /assets/pages-{version}.css; version changes
// with it, so it may be cached for good.
func Stylesheet() (body []byte, version string) {
	body = append(BrandStylesheet(ourAccent), rules...)
	sum := sha256.Sum256(body)
	return body, hex.EncodeToString(sum[:6])
}
