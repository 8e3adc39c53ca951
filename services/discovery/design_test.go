package discovery_test

import (
	"bytes"
	"image"
	"image/jpeg"
	"image/png"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

func (r *rig) design(t testing.TB, c tenant, in *adminv1.PageDesign, paths ...string) (*adminv1.PageDesign, error) {
	t.Helper()
	in.Name = c.name + "/pageDesign"
	req := &adminv1.UpdatePageDesignRequest{PageDesign: in}
	if len(paths) > 0 {
		req.UpdateMask = &fieldmaskpb.FieldMask{Paths: paths}
	}
	return r.setup.UpdatePageDesign(c.ctx(t), req)
}

func pngOf(t testing.TB, width, height int) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, png.Encode(&out, image.NewGray(image.Rect(0, 0, width, height))))
	return out.Bytes()
}

func jpegOf(t testing.TB, width, height int) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, jpeg.Encode(&out, image.NewGray(image.Rect(0, 0, width, height)), nil))
	return out.Bytes()
}

func TestPageDesign_ComesBackAsSet(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		c := r.company(t, "noodle", "")
		want := &adminv1.PageDesign{
			AccentColor: "#aa5500", Logo: pngOf(t, 4, 4), Welcome: map[string]string{"": "Welcome", "de": "Willkommen", "ja": "ようこそ"},
			SupportUrl: "https://noodle.example/help", PrivacyUrl: "https://noodle.example/privacy", TermsUrl: "https://noodle.example/terms",
			ScopeTexts: map[string]*adminv1.LocalizedText{"poppy:read": {Texts: map[string]string{"": "See your orders", "de": "Ihre Bestellungen sehen"}}},
		}
		got, err := r.design(t, c, want)
		require.NoError(t, err)
		again, err := r.setup.GetPageDesign(c.ctx(t), &adminv1.GetPageDesignRequest{Name: want.GetName()})
		require.NoError(t, err)
		require.True(t, proto.Equal(got, again))
		etag := got.GetEtag()
		got.Etag, got.UpdateTime = "", nil
		require.True(t, proto.Equal(want, got), "%v", got)

		r.connect(t, c, byOIDC())
		d := r.signIn(t, c).GetDesign()
		require.Equal(t, "#aa5500", d.GetAccentColor())
		require.Equal(t, "Willkommen", d.GetWelcome().GetByLanguage()["de"])
		require.Equal(t, "https://noodle.example/terms", d.GetTermsUrl())
		require.Len(t, d.GetLogoVersion(), 22)
		require.Equal(t, "See your orders", r.signIn(t, c).GetScopeTexts()["poppy:read"].GetByLanguage()[""])

		// A mask clears what it names and isn't set.
		got, err = r.design(t, c, &adminv1.PageDesign{Etag: etag}, "logo", "welcome", "scope_texts")
		require.NoError(t, err)
		require.Empty(t, got.GetLogo())
		require.Empty(t, got.GetWelcome())
		require.Empty(t, got.GetScopeTexts())
		require.Equal(t, "#aa5500", got.GetAccentColor())
		_, err = r.design(t, c, &adminv1.PageDesign{Etag: etag, AccentColor: "#000000"})
		requireReason(t, err, problem.EtagMismatch)
		_, err = r.design(t, c, &adminv1.PageDesign{}, "update_time")
		requireReason(t, err, problem.InvalidRequest, "update_mask")
		_, err = r.design(t, c, &adminv1.PageDesign{Logo: []byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`)})
		requireReason(t, err, problem.InvalidRequest, "page_design.logo")
	})
}

func TestLogo_ServedAsAPictureAndNothingElse(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		c := r.company(t, "noodle", "https://host.example/t/noodle")
		other := r.company(t, "other", "https://host.example/t/other")
		requireMissing(t, r.get(t, c.issuer.LogoURL()), "no logo yet")

		logo := pngOf(t, 16, 16)
		_, err := r.design(t, c, &adminv1.PageDesign{Logo: logo})
		require.NoError(t, err)
		w := r.get(t, c.issuer.LogoURL())
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, logo, w.Body.Bytes())
		etag := w.Header().Get("ETag")
		version := etag[1 : len(etag)-1]
		h := w.Header()
		require.Equal(t, "image/png", h.Get("Content-Type"))
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		require.Equal(t, "default-src 'none'; sandbox", h.Get("Content-Security-Policy"))
		require.Equal(t, "no-cache", h.Get("Cache-Control"))
		require.Empty(t, h.Get("Set-Cookie"))
		for query, want := range map[string]string{
			"?v=" + version: "public, max-age=86400", "?v=other": "no-cache", "?v=": "no-cache", "?v=" + version + "&v=other": "public, max-age=86400", "?v=%zz": "no-cache",
		} {
			require.Equal(t, want, r.get(t, c.issuer.LogoURL()+query).Header().Get("Cache-Control"), query)
		}
		head := r.ask(t, http.MethodHead, c.issuer.LogoURL())
		require.Equal(t, h, head.Header())
		require.Zero(t, head.Body.Len())
		same := r.get(t, c.issuer.LogoURL()+"?v="+version, "If-None-Match", etag)
		require.Equal(t, http.StatusNotModified, same.Code)
		require.Zero(t, same.Body.Len())
		requireMissing(t, r.get(t, other.issuer.LogoURL()+"?v="+version), "another Company's")

		photo := jpegOf(t, 16, 16)
		_, err = r.design(t, c, &adminv1.PageDesign{Logo: photo})
		require.NoError(t, err)
		w = r.get(t, c.issuer.LogoURL()+"?v="+version, "If-None-Match", etag)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "image/jpeg", w.Header().Get("Content-Type"))
		require.Equal(t, photo, w.Body.Bytes())
		require.Equal(t, "no-cache", w.Header().Get("Cache-Control"), "the old address must not fix the new logo")

		_, err = r.design(t, c, &adminv1.PageDesign{}, "logo")
		require.NoError(t, err)
		requireMissing(t, r.get(t, c.issuer.LogoURL()), "taken away")
	})
}
