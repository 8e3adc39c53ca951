package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Limits of a design.
const (
	MaxLogo     = 128 << 10 // bytes
	maxLogoSide = 2048      // pixels
	maxPageText = 300       // characters
	maxTexts    = 50        // languages of one text, and scopes with texts
)

// Design is how a Company's pages look and what they say; one never set up has no ID.
type Design struct {
	ID          string
	AccentColor string // "#rrggbb", or empty
	Logo        Logo
	// Welcome is by language tag, "" being any.
	Welcome    map[string]string
	SupportURL string
	PrivacyURL string
	TermsURL   string
	// ScopeTexts are by scope, then by language tag.
	ScopeTexts map[string]map[string]string

	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Logo is a Company's picture. The zero Logo is none.
type Logo struct {
	Type    string // "image/png" or "image/jpeg"
	Version string // hash of the bytes
	Bytes   []byte // nil in a Snapshot
}

// DesignChange is what may change of a design; nil leaves a part.
type DesignChange struct {
	AccentColor  *string
	Logo         *[]byte
	Welcome      *map[string]string
	SupportURL   *string
	PrivacyURL   *string
	TermsURL     *string
	ScopeTexts   *map[string]map[string]string
	ETag         string
	ValidateOnly bool
}

// Design returns the design with its logo.
func (a *App) Design(ctx context.Context, scope tenancy.Scope) (Design, error) {
	return a.store.Design(ctx, scope)
}

// Logo returns the Company's logo.
func (a *App) Logo(ctx context.Context, scope tenancy.Scope) (Logo, error) {
	d, err := a.store.Design(ctx, scope)
	return d.Logo, err
}

// UpdateDesign changes the design, on every page from the next request on.
func (a *App) UpdateDesign(ctx context.Context, scope tenancy.Scope, ch DesignChange) (Design, error) {
	apply := func(d *Design) error {
		if err := resource.CheckETag(ch.ETag, d.Version); err != nil {
			return err
		}
		set(&d.AccentColor, ch.AccentColor)
		set(&d.Welcome, ch.Welcome)
		set(&d.SupportURL, ch.SupportURL)
		set(&d.PrivacyURL, ch.PrivacyURL)
		set(&d.TermsURL, ch.TermsURL)
		set(&d.ScopeTexts, ch.ScopeTexts)
		if ch.Logo != nil {
			logo, err := readLogo(*ch.Logo)
			if err != nil {
				return err
			}
			d.Logo = logo
		}
		return checkDesign(*d)
	}
	if ch.ValidateOnly {
		d, err := a.store.Design(ctx, scope)
		if err != nil {
			return Design{}, err
		}
		if err := apply(&d); err != nil {
			return Design{}, err
		}
		return d, nil
	}
	d, err := a.store.UpdateDesign(ctx, scope, apply)
	if err != nil {
		return Design{}, err
	}
	a.changed(ctx, scope.CompanyID())
	return d, nil
}

// readLogo takes a PNG or a JPEG by its content. Other kinds are refused: SVG can hold
// scripts, and browsers differ in the rest.
func readLogo(raw []byte) (Logo, error) {
	const field = "page_design.logo"
	if len(raw) == 0 {
		return Logo{}, nil
	}
	if len(raw) > MaxLogo {
		return Logo{}, resource.Invalid(field, fmt.Sprintf("has more than %d KiB", MaxLogo>>10))
	}
	var size image.Config
	var kind string
	var err error
	switch {
	case bytes.HasPrefix(raw, []byte("\x89PNG\r\n\x1a\n")):
		kind = "image/png"
		size, err = png.DecodeConfig(bytes.NewReader(raw))
	case bytes.HasPrefix(raw, []byte("\xff\xd8\xff")):
		kind = "image/jpeg"
		size, err = jpeg.DecodeConfig(bytes.NewReader(raw))
	default:
		return Logo{}, resource.Invalid(field, "is neither a PNG nor a JPEG")
	}
	if err != nil || size.Width < 1 || size.Height < 1 {
		return Logo{}, resource.Invalid(field, "can't be read as "+kind)
	}
	if size.Width > maxLogoSide || size.Height > maxLogoSide {
		return Logo{}, resource.Invalid(field, fmt.Sprintf("has %d × %d pixels, of which a side may have %d", size.Width, size.Height, maxLogoSide))
	}
	sum := sha256.Sum256(raw)
	return Logo{Type: kind, Version: base64.RawURLEncoding.EncodeToString(sum[:16]), Bytes: raw}, nil
}

var color = regexp.MustCompile(`^#[0-9a-fA-F]{6}$`)

func checkDesign(d Design) error {
	if d.AccentColor != "" && !color.MatchString(d.AccentColor) {
		return resource.Invalid("page_design.accent_color", "is not of the form #rrggbb")
	}
	for _, link := range []struct{ field, url string }{{"support_url", d.SupportURL}, {"privacy_url", d.PrivacyURL}, {"terms_url", d.TermsURL}} {
		if link.url == "" {
			continue
		}
		if err := checkURL(link.url); err != nil {
			return resource.Invalid("page_design."+link.field, err.Error())
		}
	}
	if err := checkTexts("page_design.welcome", d.Welcome); err != nil {
		return err
	}
	if len(d.ScopeTexts) > maxTexts {
		return resource.Invalid("page_design.scope_texts", fmt.Sprintf("has more than %d entries", maxTexts))
	}
	for _, scope := range slices.Sorted(maps.Keys(d.ScopeTexts)) {
		at := "page_design.scope_texts." + scope
		if !isScope(scope) {
			return resource.Invalid(at, "is no OAuth scope name")
		}
		if strings.HasPrefix(scope, "poppy:") && scope != oauth.ReadScope && scope != oauth.WriteScope { // poppy-0.1/4.4#17
			return resource.Invalid(at, "is no scope of the protocol, to which names that start with poppy: belong")
		}
		if err := checkTexts(at+".texts", d.ScopeTexts[scope]); err != nil {
			return err
		}
	}
	return nil
}

// languageTag is a language tag as far as its form goes (RFC 5646, section 2.1).
var languageTag = regexp.MustCompile(`^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,7}$`)

// checkTexts asks for texts that can be shown, by well-formed language tags.
func checkTexts(at string, texts map[string]string) error {
	if len(texts) > maxTexts {
		return resource.Invalid(at, fmt.Sprintf("has more than %d entries", maxTexts))
	}
	seen := map[string]bool{}
	for _, tag := range slices.Sorted(maps.Keys(texts)) {
		field := at + "." + tag
		if tag != "" && !languageTag.MatchString(tag) {
			return resource.Invalid(field, "is no language tag")
		}
		// Tags are compared without regard to case (RFC 5646, section 2.1.1).
		if seen[strings.ToLower(tag)] {
			return resource.Invalid(field, "is there twice")
		}
		seen[strings.ToLower(tag)] = true
		if err := checkText(texts[tag], maxPageText); err != nil {
			return resource.Invalid(field, err.Error())
		}
	}
	return nil
}
