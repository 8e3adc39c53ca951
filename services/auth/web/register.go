package web

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/cimd"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// Registrations adds a client at the request of address.
type Registrations interface {
	Register(ctx context.Context, company *directory.Company, address string, body []byte) (store.RegisteredClient, error)
}

// registrationResponse is the body of RFC 7591 section 3.2.1.
type registrationResponse struct {
	ClientID      string   `json:"client_id"`
	IssuedAt      int64    `json:"client_id_issued_at"`
	Name          string   `json:"client_name"`
	RedirectURIs  []string `json:"redirect_uris"`
	GrantTypes    []string `json:"grant_types"`
	ResponseTypes []string `json:"response_types"`
	AuthMethod    string   `json:"token_endpoint_auth_method"`
}

// register takes a client that knows nothing of Poppy (RFC 7591). Where the Company doesn't
// want that there is no such endpoint.
func (e *Endpoints) register(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	if !c.RegistersClients {
		httpx.WriteNotFound(w)
		return
	}
	made, err := e.registered(w, r, c)
	if err != nil {
		e.refuse(w, r, c, err)
		return
	}
	body, err := json.Marshal(registrationResponse{
		ClientID: made.ID, IssuedAt: made.CreatedAt.Unix(), Name: made.Name, RedirectURIs: made.RedirectURIs,
		GrantTypes:    []string{string(oauth.GrantAuthorizationCode), string(oauth.GrantRefreshToken)},
		ResponseTypes: []string{"code"}, AuthMethod: "none",
	})
	if err != nil {
		e.refuse(w, r, c, err)
		return
	}
	uncacheable(w)
	httpx.WriteJSON(w, http.StatusCreated, body)
}

func (e *Endpoints) registered(w http.ResponseWriter, r *http.Request, c *directory.Company) (store.RegisteredClient, error) {
	address := e.address(r)
	if err := e.count(c, address); err != nil {
		return store.RegisteredClient{}, err
	}
	body, err := httpx.ReadBody(w, r, cimd.MaxRegistration)
	if err != nil {
		return store.RegisteredClient{}, err
	}
	return e.clients.Register(r.Context(), c, address, body)
}
