package web

import (
	"net/http"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/mediated"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth/app"
)

// Asked says which credentials a Company asks for.
type Asked interface {
	Fields(c *directory.Company) []discovery.MediatedField
}

// step is one of the two requests of Mediated Sign-In, of a Session that is known.
type step func(w http.ResponseWriter, r *http.Request, c *directory.Company, caller app.Caller) (app.Mediated, error)

// mediated establishes the Session before a byte of the body is read. Where Mediated
// Sign-In isn't offered there is no such endpoint.
func (e *Endpoints) mediated(next step) publicweb.Handler {
	return func(w http.ResponseWriter, r *http.Request, c *directory.Company) {
		if !c.SignIn.Offers(directory.Mediated) {
			httpx.WriteNotFound(w)
			return
		}
		caller, nonce, err := e.verify(r, c)
		httpx.SetDPoPNonce(w, nonce)
		if err != nil {
			e.refuseMediated(w, r, c, err)
			return
		}
		result, err := next(w, r, c, caller)
		if err != nil {
			e.refuseMediated(w, r, c, err)
			return
		}
		body, err := encodeMediated(result)
		if err != nil {
			e.refuseMediated(w, r, c, err)
			return
		}
		e.log.InfoContext(r.Context(), "mediated sign-in answered", "company", c.Scope, "session", caller.SessionID, "client_id", caller.ClientID, "status", string(result.Status))
		uncacheable(w)
		httpx.WriteJSON(w, http.StatusOK, body)
	}
}

// verify has the request's token and proof judged, for the configured URL.
func (e *Endpoints) verify(r *http.Request, c *directory.Company) (app.Caller, string, error) {
	address := e.address(r)
	if err := e.count(c, address); err != nil {
		return app.Caller{}, "", err
	}
	// Whoever puts a token there has shown it already, to the logs on the way.
	if err := oauth.CheckNoTokenInQuery(r.URL.RawQuery); err != nil {
		return app.Caller{}, "", err
	}
	endpoint := c.Issuer.SignInEndpoint()
	if id := r.PathValue("id"); id != "" {
		endpoint += "/" + id
	}
	got, err := e.sessions.VerifyRequest(tenancy.Into(r.Context(), c.Scope), &sessionsv1.VerifyRequestRequest{
		Authorization: r.Header.Values("Authorization"),
		Proof:         &sessionsv1.ProofOfRequest{Proofs: r.Header.Values("DPoP"), Method: r.Method, Url: endpoint},
	})
	if err != nil {
		return app.Caller{}, "", err
	}
	return app.Caller{
		SessionID: got.GetSessionId(), ClientID: got.GetClientId(), AgentName: got.GetAgentName(), UserID: got.GetUserId(),
		JKT: got.GetJkt(), Address: address,
	}, got.GetDpopNonce(), nil
}

func (e *Endpoints) signIn(w http.ResponseWriter, r *http.Request, c *directory.Company, caller app.Caller) (app.Mediated, error) {
	body, err := httpx.ReadBody(w, r, mediated.MaxBody)
	if err != nil {
		return app.Mediated{}, err
	}
	var names []string
	for _, f := range e.asked.Fields(c) {
		names = append(names, f.Name)
	}
	request, err := mediated.ParseRequest(body, names)
	if err != nil {
		return app.Mediated{}, err
	}
	return e.app.SignIn(r.Context(), c, caller, request)
}

func (e *Endpoints) code(w http.ResponseWriter, r *http.Request, c *directory.Company, caller app.Caller) (app.Mediated, error) {
	body, err := httpx.ReadBody(w, r, mediated.MaxBody)
	if err != nil {
		return app.Mediated{}, err
	}
	code, err := mediated.ParseCode(body)
	if err != nil {
		return app.Mediated{}, err
	}
	return e.app.Code(r.Context(), c, caller, r.PathValue("id"), code)
}

func encodeMediated(m app.Mediated) ([]byte, error) {
	switch m.Status {
	case mediated.Complete:
		return encode(m.Tokens, mediated.Complete)
	case mediated.CodeRequired:
		return mediated.EncodeCodeRequired(m.SignInID, m.SentTo, m.ExpiresAt)
	case mediated.Failed, mediated.Expired:
	}
	return mediated.EncodeEnd(m.Status)
}

func (e *Endpoints) refuseMediated(w http.ResponseWriter, r *http.Request, c *directory.Company, err error) {
	p := problem.As(err)
	e.log.InfoContext(r.Context(), "mediated sign-in refused", "route", r.Pattern, "company", c.Scope, "reason", string(p.Reason), "clause", string(p.Clause), "detail", p.Detail)
	httpx.WriteOAuthError(w, r, p, httpx.Resource)
}
