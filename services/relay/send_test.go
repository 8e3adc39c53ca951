package relay_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

func (r *rig) send(t testing.TB, req *relayv1.SendRequestRequest) *relayv1.SendRequestResponse {
	t.Helper()
	got, err := r.signIns.SendRequest(r.ctx(t), req)
	require.NoError(t, err, "what goes wrong is in the answer")
	return got
}

func TestSendRequest_PostWithTheHeadersGiven(t *testing.T) {
	r := newRig(t)
	r.site.with(http.StatusBadRequest, `{"error":"invalid_grant"}`, "Content-Type", "Application/JSON; charset=utf-8",
		"Cache-Control", "no-store", "Set-Cookie", "a=b", "Location", "https://new.example/", "Retry-After", "5", "Etag", `"e"`)
	got := r.send(t, &relayv1.SendRequestRequest{
		Method: "POST", Url: "https://backend.example/token", Body: []byte("grant_type=authorization_code&code=x"),
		Headers: map[string]string{"authorization": "Basic YTpi", "Content-Type": "application/x-www-form-urlencoded"},
	})
	require.Equal(t, int32(400), got.GetStatus())
	require.Equal(t, "application/json", got.GetContentType())
	require.JSONEq(t, `{"error":"invalid_grant"}`, string(got.GetBody()), "the body of an error counts")
	require.Equal(t, "no-store", got.GetHeaders()["Cache-Control"])
	for name := range got.GetHeaders() {
		require.Contains(t, []string{"Cache-Control", "Expires", "Age", "Date"}, name)
	}
	d := r.site.last(t)
	require.Equal(t, "POST /token", d.path)
	require.Equal(t, "grant_type=authorization_code&code=x", string(d.body))
	require.Equal(t, "Basic YTpi", d.header.Get("Authorization"))
	require.Equal(t, "application/x-www-form-urlencoded", d.header.Get("Content-Type"))
	require.Empty(t, d.header.Get("Accept"))
	require.Empty(t, d.header.Get("Traceparent"), "strangers learn of no traces")
}

func TestSendRequest_Get(t *testing.T) {
	r := newRig(t)
	r.site.with(http.StatusOK, `{}`, "Content-Type", "application/json")
	got := r.send(t, &relayv1.SendRequestRequest{Method: "GET", Url: "https://backend.example/keys", Headers: map[string]string{"Accept": "application/jwk-set+json"}})
	require.Equal(t, int32(200), got.GetStatus())
	require.Equal(t, `{}`, string(got.GetBody()))
	d := r.site.last(t)
	require.Equal(t, "GET /keys", d.path)
	require.Equal(t, "application/jwk-set+json", d.header.Get("Accept"))
	require.Empty(t, d.header.Get("Content-Type"))
}

func TestSendRequest_FollowsNoRedirect(t *testing.T) {
	r := newRig(t)
	for _, status := range []int{301, 302, 303, 307, 308} {
		r.site.with(status, "", "Location", "https://new.example/")
		got := r.send(t, &relayv1.SendRequestRequest{Method: "POST", Url: "https://backend.example/token", Headers: map[string]string{"Authorization": "Basic YTpi"}})
		require.Equal(t, int32(status), got.GetStatus())
		require.Empty(t, got.GetFailure())
	}
	require.Empty(t, r.new.deliveries())
}

func TestSendRequest_FailuresAreInTheAnswer(t *testing.T) {
	r := newRig(t)
	r.zone.set("private.example", "10.0.0.1")
	r.site.with(http.StatusOK, strings.Repeat("x", 1<<20+1), "Content-Type", "application/json")
	for url, failure := range map[string]string{
		"https://backend.example/": "too_large", "https://127.0.0.1/": "blocked", "https://private.example/": "blocked", "https://unknown.example/": "dns",
		"https://refused.example/": "connect", "https://untrusted.example/": "tls", "http://backend.example/": "invalid_url", "https://u:p@backend.example/": "invalid_url",
	} {
		got := r.send(t, &relayv1.SendRequestRequest{Method: "GET", Url: url})
		require.Equal(t, failure, got.GetFailure(), url)
		require.NotEmpty(t, got.GetDetail())
		require.NotContains(t, got.GetDetail(), "10.0.0.1")
		require.Zero(t, got.GetStatus())
		require.Empty(t, got.GetBody())
	}
	r.site.with(http.StatusOK, strings.Repeat("x", 1<<20), "Content-Type", "application/json")
	require.Len(t, r.send(t, &relayv1.SendRequestRequest{Method: "GET", Url: "https://backend.example/"}).GetBody(), 1<<20)
}

func TestSendRequest_SlowAnswer(t *testing.T) {
	r := newRig(t)
	block := make(chan struct{})
	t.Cleanup(func() { close(block) })
	r.site.answers(func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-block:
		case <-req.Context().Done():
		}
	})
	got := r.send(t, &relayv1.SendRequestRequest{Method: "GET", Url: "https://backend.example/", Timeout: durationpb.New(100 * time.Millisecond)})
	require.Equal(t, "timeout", got.GetFailure())
}

func TestSendRequest_RefusesWhatNoClientSends(t *testing.T) {
	r := newRig(t)
	for name, req := range map[string]*relayv1.SendRequestRequest{
		"no method":     {},
		"other method":  {Method: "PUT"},
		"small letters": {Method: "get"},
		"body of a GET": {Method: "GET", Body: []byte("x")},
		"cookie":        {Method: "GET", Headers: map[string]string{"Cookie": "a=b"}},
		"host":          {Method: "GET", Headers: map[string]string{"Host": "other.example"}},
		"dpop":          {Method: "POST", Headers: map[string]string{"DPoP": "x"}},
		"twice":         {Method: "GET", Headers: map[string]string{"Accept": "a/b", "accept": "c/d"}},
		"line break":    {Method: "GET", Headers: map[string]string{"Accept": "a/b\r\nCookie: a=b"}},
		"not ASCII":     {Method: "GET", Headers: map[string]string{"Authorization": "Basic é"}},
	} {
		t.Run(name, func(t *testing.T) {
			req.Url = "https://backend.example/"
			_, err := r.signIns.SendRequest(r.ctx(t), req)
			requireReason(t, err, problem.InvalidRequest)
		})
	}
	_, err := r.signIns.SendRequest(t.Context(), &relayv1.SendRequestRequest{Method: "GET", Url: "https://backend.example/"})
	require.Equal(t, problem.Internal, problem.As(err).Kind, "without a Company")
	require.Empty(t, r.site.deliveries())
}

func TestSendRequest_NothingSecretIsTold(t *testing.T) {
	r := newRig(t)
	req := func(url string) *relayv1.SendRequestRequest {
		return &relayv1.SendRequestRequest{
			Method: "POST", Url: url + "canary-path?canary-query", Body: []byte("code=canary-code&client_secret=canary-secret"),
			Headers: map[string]string{"Authorization": "Basic canary-basic", "Accept": "canary/accept"}, Timeout: durationpb.New(time.Second),
		}
	}
	for _, status := range []int{200, 302, 400, 500} {
		r.site.with(status, `{"access_token":"canary-access","error":"canary-error"}`, "Content-Type", "application/json", "Cache-Control", "canary-header", "Location", "https://canary.example")
		r.send(t, req("https://backend.example/"))
	}
	for _, url := range []string{"https://refused.example/", "https://untrusted.example/", "https://unknown.example/", "http://backend.example/"} {
		require.NotContains(t, r.send(t, req(url)).GetDetail(), "canary")
	}
	bad := req("https://backend.example/")
	bad.Headers["Cookie"] = "canary-cookie"
	_, err := r.signIns.SendRequest(r.ctx(t), bad)
	require.NotContains(t, err.Error(), "canary")
	said := r.told.all(t)
	require.Contains(t, said, "egress POST", "what is told is looked at")
	require.Contains(t, said, "SignInService/SendRequest")
	require.Contains(t, said, "poppyfield.egress.duration")
	require.NotContains(t, strings.ToLower(said), "canary")
}
