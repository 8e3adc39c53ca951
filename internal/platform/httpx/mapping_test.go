package httpx_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/refusal"
)

// inRequest runs fn as a handler under the standard middlewares, with request ids "req_1".
func inRequest(t testing.TB, log *bytes.Buffer, fn http.HandlerFunc) *httptest.ResponseRecorder {
	t.Helper()
	o := httpx.Options{Name: "test", NewID: func() string { return "req_1" }}
	if log != nil {
		o.Log = slog.New(slog.NewTextHandler(log, nil))
	}
	w := httptest.NewRecorder()
	httpx.Standard(fn, o).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "https://a.example/x?access_token=canary", strings.NewReader("body")))
	return w
}

func oauthAnswer(t testing.TB, err error, place httpx.Place) *httptest.ResponseRecorder {
	t.Helper()
	return inRequest(t, nil, func(w http.ResponseWriter, r *http.Request) { httpx.WriteOAuthError(w, r, err, place) })
}

func body(t testing.TB, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var got map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), w.Body.String())
	return got
}

func TestWriteOAuthError_StatusOfEveryCode(t *testing.T) {
	clausetest.Covers(t,
		"poppy-0.1/4.2#48", "poppy-0.1/4.2#49", "poppy-0.1/4.2#55", "poppy-0.1/4.2#57", "poppy-0.1/4.2#62", "poppy-0.1/4.2#64", "poppy-0.1/4.2#68", "poppy-0.1/4.2#69",
		"poppy-0.1/6#21", "poppy-0.1/7.13#2", "poppy-0.1/7.13#4", "poppy-0.1/7.13#6", "poppy-0.1/7.13#8", "poppy-0.1/7.13#10", "poppy-0.1/7.13#13", "poppy-0.1/7.13#15")
	const te, rs = httpx.TokenEndpoint, httpx.Resource
	for _, c := range []struct {
		place  httpx.Place
		kind   problem.Kind
		reason problem.Reason
		status int
	}{
		{te, problem.Unauthenticated, problem.InvalidClient, 401},
		{te, problem.Unauthenticated, problem.InvalidGrant, 400},
		{te, problem.Unauthenticated, problem.InvalidSession, 400},
		{te, problem.Conflict, problem.AccountMismatch, 400},
		{te, problem.Forbidden, problem.InvalidScope, 400},
		{te, problem.Invalid, problem.InvalidTarget, 400},
		{te, problem.Unauthenticated, problem.InvalidDPoPProof, 400},
		{rs, problem.Unauthenticated, problem.InvalidDPoPProof, 401},
		{te, problem.Unauthenticated, problem.UseDPoPNonce, 400},
		{rs, problem.Unauthenticated, problem.UseDPoPNonce, 401},
		{te, problem.Invalid, problem.UnsupportedGrantType, 400},
		{te, problem.Forbidden, problem.UnauthorizedClient, 400},
		{te, problem.Invalid, problem.InvalidRequest, 400},
		{te, problem.Unauthenticated, problem.InvalidRequest, 400},
		{rs, problem.Invalid, problem.InvalidRequest, 400},
		{rs, problem.Unauthenticated, problem.InvalidRequest, 401},
		{te, problem.RateLimited, problem.RateLimitedReason, 429},
		{te, problem.Unavailable, problem.TemporarilyUnavailable, 503},
		{te, problem.Invalid, "AUTHORIZATION_PENDING", 400},
		{te, problem.RateLimited, "SLOW_DOWN", 400},
		{te, problem.Forbidden, "ACCESS_DENIED", 400},
		{te, problem.Gone, "EXPIRED_TOKEN", 400},
		{rs, problem.Unauthenticated, problem.InvalidToken, 401},
		{rs, problem.Forbidden, problem.SignInRequired, 403},
		{rs, problem.Forbidden, problem.InsufficientScope, 403},
		{rs, problem.NotFound, problem.ConversationNotFound, 404},
		{rs, problem.Conflict, problem.ConversationClosed, 409},
		{rs, problem.Conflict, problem.DirectConversationOpen, 409},
		{rs, problem.Conflict, problem.MessageIDConflict, 409},
		{rs, problem.Invalid, problem.InvalidCursor, 400},
		{rs, problem.Gone, problem.CursorExpired, 410},
		{rs, problem.Forbidden, problem.ExtensionRequired, 403},
		{rs, problem.RateLimited, problem.RateLimitedReason, 429},
		{rs, problem.TooLarge, problem.RequestTooLarge, 413},
		{rs, problem.Invalid, problem.MethodNotAllowed, 405},
		{rs, problem.Invalid, problem.UnsupportedMediaType, 415},
		{rs, problem.NotFound, "SIGN_IN_NOT_FOUND", 404},
		{rs, problem.Internal, problem.ServerError, 500},
	} {
		w := oauthAnswer(t, problem.New(c.kind, c.reason, "", "why"), c.place)
		require.Equal(t, c.status, w.Code, "%s at %d", c.reason, c.place)
		require.Equal(t, c.reason.Wire(), body(t, w)["error"])
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}
}

func TestWriteOAuthError_Challenges(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#61", "poppy-0.1/4.3#26", "poppy-0.1/4.3#d44", "poppy-0.1/6#19", "poppy-0.1/6#26", "poppy-0.1/6#27", "poppy-0.1/6#29", "poppy-0.1/6#32", "poppy-0.1/7.13#1")
	const algs = `, algs="ES256 ES384 EdDSA PS256 RS256"`
	insufficient := problem.New(problem.Forbidden, problem.InsufficientScope, "", "more is needed").WithExtra("scope", "poppy:read poppy:write")
	token := problem.New(problem.Unauthenticated, problem.InvalidToken, "", `the "token" ended`)
	proof := problem.New(problem.Unauthenticated, problem.InvalidDPoPProof, "", "htm is wrong")
	for name, c := range map[string]struct {
		err   error
		place httpx.Place
		want  string
	}{
		"token":                {token, httpx.Resource, `DPoP error="invalid_token", error_description="the 'token' ended"` + algs},
		"token at MCP":         {token, httpx.BearerResource, `Bearer error="invalid_token", error_description="the 'token' ended"`},
		"proof":                {proof, httpx.Resource, `DPoP error="invalid_dpop_proof", error_description="htm is wrong"` + algs},
		"proof at TE":          {proof, httpx.TokenEndpoint, `DPoP error="invalid_dpop_proof", error_description="htm is wrong"` + algs},
		"scope":                {insufficient, httpx.Resource, `DPoP error="insufficient_scope", error_description="more is needed", scope="poppy:read poppy:write"` + algs},
		"scope at MCP":         {insufficient, httpx.BearerResource, `Bearer error="insufficient_scope", error_description="more is needed", scope="poppy:read poppy:write"`},
		"sign-in":              {problem.New(problem.Forbidden, problem.SignInRequired, "", ""), httpx.Resource, `DPoP error="sign_in_required"` + algs},
		"client":               {problem.New(problem.Unauthenticated, problem.InvalidClient, "", "unknown"), httpx.TokenEndpoint, ""},
		"grant":                {problem.New(problem.Unauthenticated, problem.InvalidGrant, "", "expired"), httpx.TokenEndpoint, ""},
		"closed":               {problem.New(problem.Conflict, problem.ConversationClosed, "", "closed"), httpx.Resource, ""},
		"extension":            {problem.New(problem.Forbidden, problem.ExtensionRequired, "", "x").WithExtra("extension", "e"), httpx.Resource, ""},
		"two authorizations":   {problem.New(problem.Unauthenticated, problem.InvalidRequest, "", "two"), httpx.Resource, `DPoP error="invalid_request", error_description="two"` + algs},
		"two at the endpoint":  {problem.New(problem.Unauthenticated, problem.InvalidRequest, "", "two"), httpx.TokenEndpoint, ""},
		"internal at resource": {errors.New("x"), httpx.Resource, ""},
	} {
		require.Equal(t, c.want, oauthAnswer(t, c.err, c.place).Header().Get("WWW-Authenticate"), name)
	}
}

func TestDP25_NonceTravelsWithTheRefusal(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#63", "poppy-0.1/6#28")
	for place, status := range map[httpx.Place]int{httpx.TokenEndpoint: 400, httpx.Resource: 401} {
		w := inRequest(t, nil, func(w http.ResponseWriter, r *http.Request) {
			httpx.SetDPoPNonce(w, "n-1")
			httpx.WriteOAuthError(w, r, problem.New(problem.Unauthenticated, problem.UseDPoPNonce, "", "use the nonce"), place)
		})
		require.Equal(t, status, w.Code)
		require.Equal(t, "n-1", w.Header().Get("DPoP-Nonce"))
		require.Contains(t, w.Header().Get("WWW-Authenticate"), `DPoP error="use_dpop_nonce"`)
		require.Equal(t, map[string]any{"error": "use_dpop_nonce", "error_description": "use the nonce"}, body(t, w))
	}
	w := inRequest(t, nil, func(w http.ResponseWriter, r *http.Request) {
		httpx.SetDPoPNonce(w, "")
		httpx.WriteOAuthError(w, r, errors.New("x"), httpx.Resource)
	})
	require.NotContains(t, w.Header(), "Dpop-Nonce")
}

func TestWriteOAuthError_DescriptionKeepsToRFC6749(t *testing.T) {
	e := problem.New(problem.Unauthenticated, problem.InvalidToken, "", "say \"%s\" \\ ü \x00\r\nSet-Cookie: a=b\x7f\u2028", "x")
	w := oauthAnswer(t, e, httpx.Resource)
	const want = "say 'x' / ? ?  Set-Cookie: a=b??"
	require.Equal(t, want, body(t, w)["error_description"])
	require.Contains(t, w.Header().Get("WWW-Authenticate"), `error_description="`+want+`"`)

	w = oauthAnswer(t, problem.New(problem.Unauthenticated, problem.InvalidToken, "", "%s", strings.Repeat("ü", 10_000)), httpx.Resource)
	require.Len(t, body(t, w)["error_description"], 400)

	w = oauthAnswer(t, problem.New(problem.Forbidden, problem.InsufficientScope, "", "").WithExtra("scope", "a\" , realm=\"b\r\nX: y"), httpx.Resource)
	require.Contains(t, w.Header().Get("WWW-Authenticate"), `scope="a' , realm='b  X: y"`)
}

func TestWriteOAuthError_FurtherMembers(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.13#7", "poppy-0.1/7.13#15")
	w := oauthAnswer(t, problem.New(problem.Conflict, problem.DirectConversationOpen, "", "one is open").WithExtra("conversation_id", "cnv_2"), httpx.Resource)
	require.Equal(t, map[string]any{"error": "direct_conversation_open", "error_description": "one is open", "conversation_id": "cnv_2"}, body(t, w))
	w = oauthAnswer(t, problem.New(problem.Forbidden, problem.ExtensionRequired, "", "").WithExtra("extension", "https://x.example").WithExtra("error", "other"), httpx.Resource)
	require.Equal(t, map[string]any{"error": "extension_required", "extension": "https://x.example"}, body(t, w))
}

func TestWriteOAuthError_RetryAfterOnEvery429(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#67", "poppy-0.1/4.3#46", "poppy-0.1/7.13#16")
	limited := problem.New(problem.RateLimited, problem.RateLimitedReason, "", "too often")
	for wait, want := range map[time.Duration]string{0: "1", time.Millisecond: "1", time.Second: "1", 1001 * time.Millisecond: "2", time.Minute: "60"} {
		e := *limited
		e.RetryAfter = wait
		w := oauthAnswer(t, &e, httpx.TokenEndpoint)
		require.Equal(t, http.StatusTooManyRequests, w.Code)
		require.Equal(t, want, w.Header().Get("Retry-After"), "%v", wait)
		require.Equal(t, "rate_limited", body(t, w)["error"])
	}
	w := oauthAnswer(t, problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "later"), httpx.Resource)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	w = oauthAnswer(t, problem.New(problem.Invalid, problem.InvalidCursor, "", "x"), httpx.Resource)
	require.Empty(t, w.Header().Get("Retry-After"))
}

func TestWriteOAuthError_AnythingElseIsAnInternalError(t *testing.T) {
	var log bytes.Buffer
	for name, err := range map[string]error{
		"foreign":       errors.New("pq: password canary refused"),
		"with a detail": problem.New(problem.Internal, problem.FailedPrecondition, "", "canary").WithCause(errors.New("cause")),
	} {
		log.Reset()
		w := inRequest(t, &log, func(w http.ResponseWriter, r *http.Request) { httpx.WriteOAuthError(w, r, err, httpx.Resource) })
		require.Equal(t, http.StatusInternalServerError, w.Code, name)
		require.Equal(t, map[string]any{"error": "server_error", "error_description": "internal error, request req_1"}, body(t, w), name)
		require.Equal(t, "req_1", w.Header().Get("X-Request-Id"))
		require.Contains(t, log.String(), "request_id=req_1")
		require.Contains(t, log.String(), "level=ERROR")
	}
}

func TestWriteOAuthError_RefusalsAreNotLogged(t *testing.T) {
	var log bytes.Buffer
	inRequest(t, &log, func(w http.ResponseWriter, r *http.Request) {
		httpx.WriteOAuthError(w, r, problem.New(problem.Unauthenticated, problem.InvalidToken, "", "x"), httpx.Resource)
	})
	require.Empty(t, log.String())
	inRequest(t, &log, func(w http.ResponseWriter, r *http.Request) {
		httpx.WriteOAuthError(w, r, problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "x").WithCause(errors.New("nats is away")), httpx.Resource)
	})
	require.Contains(t, log.String(), "nats is away")
	require.Contains(t, log.String(), "level=WARN")
}

func TestWriteOAuthError_UnknownConversationsLookAlike(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.13#d21")
	one := oauthAnswer(t, problem.New(problem.NotFound, problem.ConversationNotFound, "", "no row"), httpx.Resource)
	two := oauthAnswer(t, problem.New(problem.NotFound, problem.ConversationNotFound, "poppy-0.1/7.2#1", "of another agent"), httpx.Resource)
	require.Equal(t, `{"error":"conversation_not_found"}`, one.Body.String())
	require.Equal(t, one.Body.String(), two.Body.String())
	require.Equal(t, one.Result().Header, two.Result().Header)
}

func TestWriteNotFound_SameBytesAndHeadersAlways(t *testing.T) {
	plain := inRequest(t, nil, func(w http.ResponseWriter, _ *http.Request) { httpx.WriteNotFound(w) })
	require.Equal(t, http.StatusNotFound, plain.Code)
	require.Equal(t, `{"error":"not_found"}`, plain.Body.String())
	require.Equal(t, "application/json", plain.Header().Get("Content-Type"))
	require.Equal(t, "no-store", plain.Header().Get("Cache-Control"))
	for name, fn := range map[string]http.HandlerFunc{
		"after other headers": func(w http.ResponseWriter, _ *http.Request) {
			for _, h := range []string{"DPoP-Nonce", "WWW-Authenticate", "Retry-After", "ETag", "Last-Modified", "Location", "Allow", "Vary", "Cache-Control"} {
				w.Header().Set(h, "public")
			}
			httpx.WriteNotFound(w)
		},
		"from a problem": func(w http.ResponseWriter, r *http.Request) {
			httpx.WriteOAuthError(w, r, problem.New(problem.NotFound, problem.NotFoundReason, "", "domain of another company"), httpx.Resource)
		},
		"at the token endpoint": func(w http.ResponseWriter, r *http.Request) {
			httpx.WriteOAuthError(w, r, problem.New(problem.NotFound, problem.NotFoundReason, "", "disabled"), httpx.TokenEndpoint)
		},
	} {
		w := inRequest(t, nil, fn)
		require.Equal(t, plain.Code, w.Code, name)
		require.Equal(t, plain.Body.String(), w.Body.String(), name)
		require.Equal(t, plain.Result().Header, w.Result().Header, name)
	}
}

func problemAnswer(t testing.TB, err error) *httptest.ResponseRecorder {
	t.Helper()
	return inRequest(t, nil, func(w http.ResponseWriter, r *http.Request) { httpx.WriteProblem(w, r, err) })
}

func TestWriteProblem_StatusOfEveryKind(t *testing.T) {
	for kind, want := range map[problem.Kind]int{
		problem.Internal: 500, problem.Invalid: 400, problem.Unauthenticated: 401, problem.Forbidden: 403, problem.NotFound: 404,
		problem.Conflict: 409, problem.Gone: 410, problem.TooLarge: 413, problem.RateLimited: 429, problem.Unavailable: 503, problem.Kind(200): 500,
	} {
		w := problemAnswer(t, problem.New(kind, problem.FailedPrecondition, "", "why"))
		require.Equal(t, want, w.Code)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		require.InDelta(t, want, body(t, w)["status"], 0)
		require.Equal(t, want == 401, w.Header().Get("WWW-Authenticate") != "")
		require.Equal(t, want == 429 || want == 503, w.Header().Get("Retry-After") != "")
	}
	require.Equal(t, http.StatusPreconditionFailed, problemAnswer(t, problem.New(problem.Conflict, problem.EtagMismatch, "", "x")).Code)
}

func TestWriteProblem_AllMembers(t *testing.T) {
	e := problem.New(problem.Invalid, problem.InvalidRequest, "poppy-0.1/3#7", "two fields are wrong").
		WithField("apis[0].url", "is not https").WithField("name", "is empty").WithRetryAfter(90*time.Second).WithExtra("limit", "3")
	require.Equal(t, map[string]any{
		"type": "urn:poppyfield:problem:invalid-request", "title": "Bad Request", "status": 400.0, "detail": "two fields are wrong",
		"reason": "INVALID_REQUEST", "clause": "poppy-0.1/3#7", "request_id": "req_1", "retry_delay": "90s",
		"field_violations": []any{
			map[string]any{"field": "apis[0].url", "description": "is not https"},
			map[string]any{"field": "name", "description": "is empty"},
		},
		"metadata": map[string]any{"limit": "3"},
	}, body(t, problemAnswer(t, e)))
}

func TestWriteProblem_AnythingElseIsAnInternalError(t *testing.T) {
	w := problemAnswer(t, errors.New("sql: canary"))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.NotContains(t, w.Body.String(), "canary")
	require.Equal(t, map[string]any{
		"type": "urn:poppyfield:problem:server-error", "title": "Internal Server Error", "status": 500.0,
		"detail": "internal error", "reason": "SERVER_ERROR", "request_id": "req_1",
	}, body(t, w))
}

func TestWriteMethodNotAllowed_NamesTheMethods(t *testing.T) {
	w := inRequest(t, nil, func(w http.ResponseWriter, _ *http.Request) { httpx.WriteMethodNotAllowed(w, "GET", "HEAD") })
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	require.Equal(t, `{"error":"method_not_allowed"}`, w.Body.String())
}

func TestWriteJSON_KeepsTheHandlersCaching(t *testing.T) {
	w := inRequest(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=300")
		httpx.WriteJSON(w, http.StatusOK, []byte(`{}`))
	})
	require.Equal(t, "public, max-age=300", w.Header().Get("Cache-Control"))
	require.Equal(t, "2", w.Header().Get("Content-Length"))
	w = inRequest(t, nil, func(w http.ResponseWriter, _ *http.Request) { httpx.WriteJSON(w, http.StatusOK, []byte(`{}`)) })
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
}

func TestPR03_MetadataOfAnMCPServerGoesIntoItsChallengeAlone(t *testing.T) {
	const at = "https://company.example/poppy/resources/x.json"
	err := problem.New(problem.Forbidden, problem.InsufficientScope, "", "more is\n\"needed\"").WithExtra("scope", "poppy:read").WithExtra(problem.ResourceMetadata, at)
	mcp := refusal.OAuth(err, refusal.BearerResource, "")
	require.Equal(t, `Bearer error="insufficient_scope", error_description="more is 'needed'", scope="poppy:read", resource_metadata="`+at+`"`, mcp.Header.Get("WWW-Authenticate"))
	require.NotContains(t, string(mcp.Body), at)
	other := refusal.OAuth(err, refusal.Resource, "")
	require.NotContains(t, other.Header.Get("WWW-Authenticate"), at)
	require.NotContains(t, string(other.Body), at)
}

func TestWriteOAuthError_NonceGoesIntoItsHeaderAlone(t *testing.T) {
	err := problem.New(problem.Unauthenticated, problem.UseDPoPNonce, "", "use the nonce").WithExtra(problem.DPoPNonce, "n-1").WithExtra("other", "kept")
	w := httptest.NewRecorder()
	httpx.WriteOAuthError(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil), err, httpx.Resource)
	require.Equal(t, "n-1", w.Header().Get("DPoP-Nonce"))
	require.Equal(t, map[string]any{"error": "use_dpop_nonce", "error_description": "use the nonce", "other": "kept"}, body(t, w))
	require.Equal(t, "n-1", err.Extra[problem.DPoPNonce], "the problem itself stays as it is")
}
