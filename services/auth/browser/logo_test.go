package browser_test

import (
	"bytes"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

const logoURL = "https://cdn.agent.example/logo.png"

func picture(width, height int) image.Image {
	out := image.NewNRGBA(image.Rect(0, 0, width, height))
	for x := range width {
		for y := range height {
			out.Set(x, y, color.NRGBA{R: 200, G: 30, B: 60, A: 255})
		}
	}
	return out
}

func pngOf(t testing.TB, in image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, in))
	return b.Bytes()
}

func TestCI17_LogoComesThroughUs(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		b, p := r.begun(t)
		require.NotContains(t, p.body, logoURL)
		at := regexpOf(t, `src="([^"]+/agent-logo)"`, p.body)
		require.True(t, strings.HasPrefix(at, r.company.Issuer.String()+"/sign-in/"))

		hidden := []byte("<script>canary</script>")
		r.Web.Put(logoURL, &relayv1.FetchResponse{Status: 200, ContentType: "image/svg+xml", Body: append(pngOf(t, picture(1000, 500)), hidden...)})
		for range 3 {
			got := b.once(at)
			require.Equal(t, http.StatusOK, got.status)
			require.Equal(t, "image/png", got.header.Get("Content-Type"))
			require.Equal(t, "nosniff", got.header.Get("X-Content-Type-Options"))
			require.NotContains(t, got.body, string(hidden))
			shown, err := png.Decode(strings.NewReader(got.body))
			require.NoError(t, err)
			require.Equal(t, image.Pt(250, 125), shown.Bounds().Size())
			red, green, blue, alpha := shown.At(3, 3).RGBA()
			require.Equal(t, []uint32{200 * 0x101, 30 * 0x101, 60 * 0x101, 0xFFFF}, []uint32{red, green, blue, alpha})
		}
		require.Equal(t, 1, r.Web.Fetches(logoURL))

		// It is shown to the browser of the sign-in, and is no proxy for others.
		require.Equal(t, http.StatusNotFound, r.browser(t).once(at).status)
		require.Equal(t, http.StatusNotFound, b.once(r.company.Issuer.String()+"/sign-in/sgn_unknown/agent-logo").status)
	})
}

func TestCI17_NoLogoRatherThanABadOne(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		var jpg, anim bytes.Buffer
		require.NoError(t, jpeg.Encode(&jpg, picture(64, 64), nil))
		require.NoError(t, gif.Encode(&anim, picture(8, 8), nil))
		wide := pngOf(t, picture(1025, 1))
		bomb := append([]byte(nil), pngOf(t, picture(16, 16))...)
		copy(bomb[16:], []byte{0, 1, 0, 0, 0, 1, 0, 0}) // says that it has 65,536 by 65,536 pixels
		n := 0
		// fetched is the status of the logo of a new agent whose server gives answer.
		fetched := func(answer *relayv1.FetchResponse) int {
			n++
			at := "https://cdn.agent.example/" + strconv.Itoa(n) + ".png"
			r.agent.ClientID = "https://agent.example/" + strconv.Itoa(n) + ".json"
			r.publish(map[string]any{"logo_uri": at})
			if answer != nil {
				r.Web.Put(at, answer)
			}
			b, p := r.begun(t)
			return b.once(p.url + "/agent-logo").status
		}
		file := func(body []byte) *relayv1.FetchResponse {
			return &relayv1.FetchResponse{Status: 200, ContentType: "image/png", Body: body}
		}
		require.Equal(t, http.StatusOK, fetched(file(jpg.Bytes())))
		for name, answer := range map[string]*relayv1.FetchResponse{
			"svg":             file([]byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`)),
			"gif":             file(anim.Bytes()),
			"html":            file([]byte("<html>")),
			"empty":           file(nil),
			"cut":             file(pngOf(t, picture(64, 64))[:60]),
			"too wide":        file(wide),
			"bomb":            file(bomb),
			"many scans":      file(append(bytes.Clone(jpg.Bytes()), bytes.Repeat([]byte{0xFF, 0xDA}, 40)...)),
			"not found":       {Status: 404, ContentType: "image/png", Body: pngOf(t, picture(8, 8))},
			"redirect":        {Status: 302, Headers: map[string]string{"Location": "https://10.0.0.1/"}},
			"private address": {Failure: "blocked", Detail: "the address is not public"},
			"too large":       {Failure: "too_large", Detail: "more than 262144 bytes"},
			"no such host":    nil,
		} {
			require.Equal(t, http.StatusNotFound, fetched(answer), name)
		}
		// What is no https URL is no logo to begin with.
		for _, uri := range []string{"http://cdn.agent.example/l.png", "data:image/png;base64,AAAA", "javascript:alert(1)", "//cdn.agent.example/l.png"} {
			n++
			r.agent.ClientID = "https://agent.example/" + strconv.Itoa(n) + ".json"
			r.publish(map[string]any{"logo_uri": uri})
			b, p := r.begun(t)
			require.NotContains(t, p.body, "agent-logo", uri)
			require.Equal(t, http.StatusNotFound, b.once(p.url+"/agent-logo").status)
		}
	})
}

func TestAgentLogo_OursBeingDownIsNotRemembered(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		b, p := r.begun(t)
		r.Web.Put(logoURL, &relayv1.FetchResponse{Status: 200, ContentType: "image/png", Body: pngOf(t, picture(8, 8))})
		r.Web.Down(true)
		require.Equal(t, http.StatusNotFound, b.once(p.url+"/agent-logo").status)
		r.Web.Down(false)
		require.Equal(t, http.StatusOK, b.once(p.url+"/agent-logo").status)
	})
}
