package demo

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// callTool posts one call of a tool, judged by an admin API that answers with verdict.
func callTool(t *testing.T, status int, said string) (*httptest.ResponseRecorder, string) {
	t.Helper()
	asked := ""
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked = r.URL.Path + " " + string(raw)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(said))
	}))
	t.Cleanup(api.Close)
	m := newMCPServer(newShop(), func() time.Time { return time.Date(2026, 10, 2, 12, 0, 0, 0, time.UTC) })
	m.guard.Store(&guard{api: &adminClient{origin: api.URL, key: "pfk_x", http: api.Client()}, company: "companies/cmp_1", url: "https://noodle-bar.localhost/mcp"})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://noodle-bar.localhost/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_orders","arguments":{}}}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer pst_x")
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return w, asked
}

func TestMCP_ServesTheAccountThatTheVerdictNames(t *testing.T) {
	w, asked := callTool(t, http.StatusOK, `{"allowed":true,"session":{"account":"customer-1002"}}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Contains(t, w.Body.String(), `"number":"1043"`)
	require.NotContains(t, w.Body.String(), "1042")
	path, body, _ := strings.Cut(asked, " ")
	require.Equal(t, "/v1/companies/cmp_1:verifyRequest", path)
	require.JSONEq(t, `{"method":"POST","url":"https://noodle-bar.localhost/mcp","headers":[{"name":"Authorization","value":"Bearer pst_x"}]}`, body)
}

func TestMCP_AnswersARefusalAsItIsToldTo(t *testing.T) {
	said, err := json.Marshal(map[string]any{
		"status": 401, "body": `{"error":"invalid_token"}`, "headers": []any{map[string]string{"name": "WWW-Authenticate", "value": `Bearer error="invalid_token"`}},
	})
	require.NoError(t, err)
	w, _ := callTool(t, http.StatusOK, string(said))
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.Equal(t, `Bearer error="invalid_token"`, w.Header().Get("WWW-Authenticate"))
	require.Equal(t, `{"error":"invalid_token"}`, w.Body.String())
}

func TestMCP_ServesNobodyWhileNobodyKnows(t *testing.T) {
	w, _ := callTool(t, http.StatusBadRequest, `{"reason":"INVALID_REQUEST"}`)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.NotContains(t, w.Body.String(), "104")
	closed := httptest.NewRecorder()
	newMCPServer(newShop(), nil).ServeHTTP(closed, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://noodle-bar.localhost/mcp", nil))
	require.Equal(t, http.StatusServiceUnavailable, closed.Code)
}
