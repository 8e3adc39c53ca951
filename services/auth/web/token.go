package web

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/mediated"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

// tokenResponse is the body of Poppy 4.2 and 4.4. Only the Account Token is ever left
// out, with its lifetime; scope is there also where it is "" (poppy-0.1/4.2#37).
type tokenResponse struct {
	Status           mediated.Status `json:"status,omitempty"` // Mediated Sign-In only
	AccessToken      string          `json:"access_token"`
	TokenType        string          `json:"token_type"`
	ExpiresIn        int64           `json:"expires_in"` // seconds
	RefreshToken     string          `json:"refresh_token,omitempty"`
	RefreshExpiresIn int64           `json:"refresh_token_expires_in,omitempty"` // seconds; none: no end
	Scope            string          `json:"scope"`
	SessionID        string          `json:"session_id"`
	SignedIn         bool            `json:"signed_in"`
}

func (e *Endpoints) token(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	form, err := e.form(w, r, c)
	if err != nil {
		e.refuse(w, r, c, err)
		return
	}
	opened, err := e.app.Token(r.Context(), c, form, r.Method, r.Header.Values("DPoP"))
	if err != nil {
		e.refuse(w, r, c, err)
		return
	}
	body, err := encode(opened, "")
	if err != nil {
		e.refuse(w, r, c, err)
		return
	}
	httpx.SetDPoPNonce(w, opened.GetDpopNonce())
	uncacheable(w)
	httpx.WriteJSON(w, http.StatusOK, body)
}

func encode(o *sessionsv1.IssuedTokens, status mediated.Status) ([]byte, error) {
	return json.Marshal(tokenResponse{
		Status:      status,
		AccessToken: o.GetAccessToken(), TokenType: o.GetTokenType(), ExpiresIn: seconds(o.GetExpiresIn()),
		RefreshToken: o.GetRefreshToken(), RefreshExpiresIn: seconds(o.GetRefreshTokenExpiresIn()),
		Scope: o.GetScope(), SessionID: o.GetSessionId(), SignedIn: o.GetSignedIn(),
	})
}

func seconds(d *durationpb.Duration) int64 { return int64(d.AsDuration() / time.Second) }

// deviceResponse is the body of RFC 8628 section 3.2.
type deviceResponse struct {
	DeviceCode              string `json:"device_code"`
	UserCode                string `json:"user_code"`
	VerificationURI         string `json:"verification_uri"`
	VerificationURIComplete string `json:"verification_uri_complete"`
	ExpiresIn               int64  `json:"expires_in"` // seconds
	Interval                int64  `json:"interval"`   // seconds
}

// device ignores the DPoP header, as revoke does. Where Device Sign-In isn't offered
// there is no such endpoint.
func (e *Endpoints) device(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	if !c.SignIn.Offers(directory.Device) {
		httpx.WriteNotFound(w)
		return
	}
	form, err := e.form(w, r, c)
	if err != nil {
		e.refuse(w, r, c, err)
		return
	}
	started, err := e.app.Device(r.Context(), c, form)
	if err != nil {
		e.refuse(w, r, c, err)
		return
	}
	page := c.Issuer.VerificationURI()
	body, err := json.Marshal(deviceResponse{
		DeviceCode: started.GetDeviceCode(), UserCode: started.GetUserCode(),
		VerificationURI: page, VerificationURIComplete: page + "?user_code=" + url.QueryEscape(started.GetUserCode()),
		ExpiresIn: seconds(started.GetExpiresIn()), Interval: seconds(started.GetInterval()),
	})
	if err != nil {
		e.refuse(w, r, c, err)
		return
	}
	uncacheable(w)
	httpx.WriteJSON(w, http.StatusOK, body)
}

// revoke ignores the DPoP header: no proof is needed here (decision 28).
func (e *Endpoints) revoke(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	form, err := e.form(w, r, c)
	if err == nil {
		err = e.app.Revoke(r.Context(), c, form)
	}
	if err != nil {
		e.refuse(w, r, c, err)
		return
	}
	uncacheable(w)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
}
