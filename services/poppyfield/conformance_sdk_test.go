package main

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	poppy "github.com/poppyfield/poppyfield/sdk/go"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// A Company's own API behind the SDK, which judges by itself and is told of changes (4.3, 6).
func TestSDK_AnAPIServesByItselfUntilTheSessionEnds(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/6#10")
		clausetest.Refuses(t, "poppy-0.1/6#10", "poppy-0.1/4.3#22")
		co := signsIn(t, in)
		co.patch(t, "discoverySettings", object{"apis": []any{object{
			"type": "openapi", "url": "https://api.shop.test/openapi.json", "base_urls": []any{"https://api.shop.test"},
			"rules": []any{object{"path": "/products/**"}, object{"path": "/orders/**", "scopes": []any{"poppy:read"}}},
		}}})
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go func() { _ = in.process.graph.admin.ServeGRPC(lis) }() // it ends with the process
		conn, err := poppy.Dial(lis.Addr().String(), co.key, &tls.Config{RootCAs: in.ca.Pool(), ServerName: apiHost, MinVersion: tls.VersionTLS12})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		v, err := poppy.New(t.Context(), poppy.Config{Company: co.name, Conn: conn, BaseURL: "https://api.shop.test", Local: true})
		require.NoError(t, err)
		t.Cleanup(v.Close)
		api := v.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s, _ := poppy.SessionFrom(r.Context())
			_, _ = io.WriteString(w, s.Account+s.Name)
		}))
		s := co.visitor(t)
		send := func(s *session, method, path, proof string) *httptest.ResponseRecorder {
			q := httptest.NewRequest(method, "http://elsewhere.test"+path, nil)
			q.Header.Set("Authorization", "DPoP "+s.token)
			q.Header.Set("DPoP", proof)
			w := httptest.NewRecorder()
			api.ServeHTTP(w, q)
			return w
		}
		call := func(s *session, method, path string) *httptest.ResponseRecorder {
			return send(s, method, path, fixture.Proof(t, s.key, method, "https://api.shop.test"+path, s.token, time.Now()))
		}
		for range 20 {
			w := call(s, "GET", "/products/7")
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			require.Equal(t, co.name+"/sessions/"+s.id, w.Body.String())
		}
		proof := fixture.Proof(t, s.key, "GET", "https://api.shop.test/products/7", s.token, time.Now())
		require.Equal(t, http.StatusOK, send(s, "GET", "/products/7", proof).Code)
		again := send(s, "GET", "/products/7", proof)
		require.Equal(t, http.StatusUnauthorized, again.Code)
		require.Contains(t, again.Header().Get("WWW-Authenticate"), `error="invalid_dpop_proof"`)
		refused := call(s, "GET", "/orders/7")
		require.Equal(t, http.StatusForbidden, refused.Code)
		require.Contains(t, refused.Header().Get("WWW-Authenticate"), `error="sign_in_required"`)
		signedIn := s.as(s.direct(t, "acc-1", "poppy:read").is(t, http.StatusOK, "").str("access_token"))
		require.Equal(t, "acc-1"+co.name+"/sessions/"+s.id, call(signedIn, "GET", "/orders/7").Body.String())
		require.Equal(t, http.StatusOK, call(signedIn, "POST", "/orders/7").Code)
		require.Equal(t, http.StatusBadRequest, call(s, "GET", "/products/../orders").Code)

		co.admin(t, http.MethodPost, co.name+"/sessions/"+s.id+":end", object{}).is(t, http.StatusOK, "")
		require.Eventually(t, func() bool { return call(signedIn, "GET", "/orders/7").Code == http.StatusUnauthorized }, patience, 10*time.Millisecond)
		require.Equal(t, http.StatusUnauthorized, call(s, "GET", "/products/7").Code)
	})
}
