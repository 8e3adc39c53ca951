package web

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin/app"
	"github.com/poppyfield/poppyfield/services/admin/gate"
	"github.com/poppyfield/poppyfield/services/admin/gateway"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

// introspection is the answer of RFC 7662 section 2.2 with cnf of RFC 9449 section 6.2.
// sub and username are the account, so both are absent where nobody signed in: the User
// ID is the agent's to choose, and must not be taken for an account.
type introspection struct {
	Active    bool          `json:"active"`
	Scope     string        `json:"scope,omitempty"`
	ClientID  string        `json:"client_id,omitempty"`
	Username  string        `json:"username,omitempty"`
	TokenType string        `json:"token_type,omitempty"`
	Expires   int64         `json:"exp,omitempty"`
	Issued    int64         `json:"iat,omitempty"`
	Subject   string        `json:"sub,omitempty"`
	Audience  string        `json:"aud,omitempty"`
	Issuer    string        `json:"iss,omitempty"`
	Confirm   *confirmation `json:"cnf,omitempty"`
}

type confirmation struct {
	JKT string `json:"jkt"`
}

// introspect is the introspection endpoint of RFC 7662. Its clients are what protects
// resources, so they show the Company's key.
func (h *Handler) introspect(w http.ResponseWriter, r *http.Request, m *method.Method, companyID string) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		httpx.WriteOAuthError(w, r, problem.New(problem.Invalid, problem.MethodNotAllowed, "", "tokens are introspected with POST"), httpx.TokenEndpoint)
		return
	}
	user, key := clientCredentials(r.Header.Values("Authorization"))
	if !app.WellFormed(key) { // who shows no key gets no body read
		refuseClient(w, r)
		return
	}
	token, err := introspected(w, r)
	if err != nil {
		httpx.WriteOAuthError(w, r, err, httpx.TokenEndpoint)
		return
	}
	out, err := h.deps.Gate.HandleFor(h.deps.Gate.FromHTTP(r, key, httpx.RequestIDFrom(r.Context())), m, func(k *app.Key, into proto.Message) error {
		if !user.is(k, companyID) {
			return invalidClient()
		}
		proto.Merge(into, &adminv1.IntrospectTokenRequest{Parent: gateway.CompanyName(companyID), Token: token})
		return nil
	})
	if err != nil {
		if p := problem.As(toProblem(err)); p.Kind == problem.Unauthenticated {
			refuseClient(w, r)
			return
		}
		httpx.WriteOAuthError(w, r, toProblem(err), httpx.TokenEndpoint)
		return
	}
	got, ok := out.(*adminv1.IntrospectTokenResponse)
	if !ok {
		httpx.WriteOAuthError(w, r, problem.New(problem.Internal, problem.ServerError, "", "internal error"), httpx.TokenEndpoint)
		return
	}
	raw, err := json.Marshal(introspectionOf(got))
	if err != nil {
		httpx.WriteOAuthError(w, r, err, httpx.TokenEndpoint)
		return
	}
	httpx.WriteJSON(w, http.StatusOK, raw)
}

// introspected reads the token of the form. token_type_hint and what else there may be make no difference.
func introspected(w http.ResponseWriter, r *http.Request) (string, error) {
	if err := oauth.CheckNoTokenInQuery(r.URL.RawQuery); err != nil {
		return "", err
	}
	if err := oauth.CheckFormContentType(r.Header.Get("Content-Type")); err != nil {
		return "", err
	}
	body, err := httpx.ReadBody(w, r, oauth.MaxForm)
	if err != nil {
		return "", err
	}
	form, err := oauth.ParseForm(body)
	if err != nil {
		return "", err
	}
	if !form.Has("token") {
		return "", problem.New(problem.Invalid, problem.InvalidRequest, "", "token is missing")
	}
	return form.Get("token"), nil
}

func introspectionOf(got *adminv1.IntrospectTokenResponse) introspection {
	if !got.GetActive() {
		return introspection{}
	}
	s := got.GetSession()
	out := introspection{
		Active: true, Scope: strings.Join(s.GetScopes(), " "), ClientID: s.GetClientId(), Username: s.GetAccount(), TokenType: got.GetTokenType(),
		Expires: s.GetExpireTime().GetSeconds(), Issued: got.GetIssueTime().GetSeconds(), Subject: s.GetAccount(), Audience: got.GetResource(), Issuer: got.GetIssuer(),
	}
	if got.GetJkt() != "" {
		out.Confirm = &confirmation{got.GetJkt()}
	}
	return out
}

// username is what a client says it is by HTTP Basic; with Bearer it says nothing.
type username struct {
	text  string
	basic bool
}

// is reports whether a name is the key's or its Company's.
func (u username) is(k *app.Key, companyID string) bool {
	return !u.basic || slices.Contains([]string{k.ID, k.Name(), companyID, gateway.CompanyName(companyID)}, u.text)
}

// clientCredentials reads a key out of an Authorization header, "" where there is none.
// In Basic both parts are form-encoded (RFC 6749 section 2.3.1).
func clientCredentials(values []string) (user username, key string) {
	if len(values) != 1 {
		return username{}, ""
	}
	if key := gate.Bearer(values[0]); key != "" {
		return username{}, key
	}
	name, secret, ok := (&http.Request{Header: http.Header{"Authorization": values}}).BasicAuth()
	if !ok {
		return username{}, ""
	}
	name, nameErr := url.QueryUnescape(name)
	secret, secretErr := url.QueryUnescape(secret)
	if nameErr != nil || secretErr != nil {
		return username{}, ""
	}
	return username{name, true}, secret
}

// refuseClient says how to authenticate, as RFC 6749 section 5.2 asks for.
func refuseClient(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("WWW-Authenticate", `Basic realm="poppyfield"`)
	w.Header().Add("WWW-Authenticate", `Bearer realm="poppyfield"`)
	httpx.WriteOAuthError(w, r, invalidClient(), httpx.TokenEndpoint)
}

func invalidClient() error {
	return problem.New(problem.Unauthenticated, problem.InvalidClient, "", "a valid API key is needed, as a Bearer token or the password of the key's or the Company's name")
}
