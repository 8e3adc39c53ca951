package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// A Company's own API has us judge what agents send it (4.3, 6): by REST, with the Company's key.
func TestAPIs_ACompanyHasItsCallsJudged(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/6#10", "poppy-0.1/6#19", "poppy-0.1/6#23", "poppy-0.1/6#25", "poppy-0.1/6#26", "poppy-0.1/6#32")
		clausetest.Refuses(t, "poppy-0.1/6#10", "poppy-0.1/6#20")
		co := signsIn(t, in)
		co.patch(t, "discoverySettings", object{"apis": []any{object{
			"type": "openapi", "url": "https://api.shop.test/openapi.json", "base_urls": []any{"https://api.shop.test/v2"},
			"rules": []any{
				object{"methods": []any{"GET"}, "path": "/products/**"},
				object{"path": "/orders/**", "scopes": []any{"poppy:read", "poppy:write"}},
			},
		}}})
		s := co.visitor(t)
		proof := func(s *session, method, url string) string {
			return fixture.Proof(t, s.key, method, url, s.token, time.Now())
		}
		judge := func(method, url string, fields ...object) answer {
			return co.admin(t, http.MethodPost, co.name+":verifyRequest", object{"method": method, "url": url, "headers": fields})
		}
		ask := func(s *session, method, url string) answer {
			return judge(method, url, object{"name": "authorization", "value": "DPoP " + s.token}, object{"name": "DPoP", "value": proof(s, method, url)}).is(t, http.StatusOK, "")
		}
		const products, exchange = "https://api.shop.test/v2/products/7", "https://api.shop.test/v2/orders/7/exchanges"
		served := ask(s, "GET", products)
		require.Equal(t, true, served.body["allowed"])
		who, _ := served.body["session"].(map[string]any)
		require.Equal(t, []any{s.agent.ClientID, co.name + "/sessions/" + s.id}, []any{who["client_id"], who["session"]})

		refused := ask(s, "POST", exchange)
		require.Equal(t, []any{false, 403.0, "sign_in_required"}, []any{refused.body["allowed"], refused.body["status"], refused.body["reason"]})
		partly := s.as(s.direct(t, "acc-1", "poppy:read").is(t, http.StatusOK, "").str("access_token"))
		refused = ask(partly, "POST", exchange)
		require.Equal(t, "insufficient_scope", refused.body["reason"])
		require.Contains(t, string(refused.raw), `scope=\"poppy:read poppy:write\"`)
		wholly := s.as(s.direct(t, "acc-1", "poppy:read", "poppy:write").is(t, http.StatusOK, "").str("access_token"))
		served = ask(wholly, "POST", exchange)
		who, _ = served.body["session"].(map[string]any)
		require.Equal(t, []any{true, "acc-1"}, []any{served.body["allowed"], who["account"]})
		require.Equal(t, "access_denied", ask(wholly, "DELETE", "https://api.shop.test/v2/users/1").body["reason"])

		// What the agent sent is judged once, and is good nowhere else.
		fields := []object{{"name": "Authorization", "value": "DPoP " + wholly.token}, {"name": "DPoP", "value": proof(wholly, "GET", products)}}
		require.Equal(t, true, judge("GET", products, fields...).body["allowed"])
		require.Equal(t, "invalid_dpop_proof", judge("GET", products, fields...).body["reason"])
		require.Equal(t, "invalid_token", judge("GET", products, object{"name": "Authorization", "value": "Bearer " + wholly.token}).body["reason"])
		require.Equal(t, "invalid_token", judge("GET", products).body["reason"])
		require.Equal(t, http.StatusBadRequest, judge("GET", "https://elsewhere.test/products").status)
		require.Equal(t, http.StatusBadRequest, judge("GET", "https://api.shop.test/v2/products/../orders").status)

		known := co.admin(t, http.MethodPost, co.name+":introspectToken", object{"token": wholly.token}).is(t, http.StatusOK, "")
		require.Equal(t, []any{true, "DPoP"}, []any{known.body["active"], known.body["token_type"]})
		other := signsIn(t, in)
		require.NotEqual(t, true, other.admin(t, http.MethodPost, other.name+":introspectToken", object{"token": wholly.token}).is(t, http.StatusOK, "").body["active"])
	})
}
