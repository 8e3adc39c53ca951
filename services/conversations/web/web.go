// Package web answers Personal Agents on the conversation endpoint (Poppy 7.2). It
// reads requests and writes responses; what they mean is the app's, and whose they
// are the sessions service says, before a byte of the body is read.
package web

import (
	"context"
	"net/http"
	"slices"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/conversations/app"
)

// Handlers are the endpoints.
type Handlers struct {
	App      *app.App
	Sessions sessionsv1.SessionsServiceClient
	Now      clock.Clock
	Streams  Streams

	seats *seats
}

// Routes returns the endpoints below a Company's issuer.
func (h *Handlers) Routes() []publicweb.Route {
	h.seats = newSeats(h.Streams.Readers)
	return []publicweb.Route{
		{Method: http.MethodPost, Path: "/poppy/conversations", Handler: h.endpoint(h.start), Caller: publicweb.Session},
		{Method: http.MethodPost, Path: "/poppy/conversations/{id}/messages", Handler: h.endpoint(h.send), Caller: publicweb.Session},
		{Method: http.MethodGet, Path: "/poppy/conversations/{id}/events", Handler: h.events, Caller: publicweb.Session},
		{Method: http.MethodPost, Path: "/poppy/conversations/{id}/handoff", Handler: h.endpoint(h.handOff), Caller: publicweb.Session},
		{Method: http.MethodPost, Path: "/poppy/conversations/{id}/close", Handler: h.endpoint(h.close), Caller: publicweb.Session},
	}
}

// A handler answers a verified request: with a status and JSON, or with an error.
type handler func(w http.ResponseWriter, r *http.Request, co *directory.Company, caller app.Caller) (int, []byte, error)

func (h *Handlers) endpoint(next handler) publicweb.Handler {
	return func(w http.ResponseWriter, r *http.Request, co *directory.Company) {
		caller, ok := h.admit(w, r, co)
		if !ok {
			return
		}
		status, body, err := next(w, r, co, caller)
		if err != nil {
			writeError(w, r, err)
			return
		}
		httpx.WriteJSON(w, status, body)
	}
}

// admit establishes whose the request is; without a caller it has answered.
func (h *Handlers) admit(w http.ResponseWriter, r *http.Request, co *directory.Company) (app.Caller, bool) {
	if !co.ConversationsEnabled {
		httpx.WriteNotFound(w)
		return app.Caller{}, false
	}
	caller, nonce, err := h.verify(r, co)
	httpx.SetDPoPNonce(w, nonce)
	if err != nil {
		writeError(w, r, err)
		return app.Caller{}, false
	}
	return caller, true
}

// verify has the request's token and proof judged. The URL is the configured one:
// Host and forwarding headers say nothing about it (poppy-0.1/4.3#d2).
func (h *Handlers) verify(r *http.Request, co *directory.Company) (app.Caller, string, error) {
	got, err := h.Sessions.VerifyRequest(tenancy.Into(r.Context(), co.Scope), &sessionsv1.VerifyRequestRequest{
		Authorization:    r.Header.Values("Authorization"),
		Proof:            &sessionsv1.ProofOfRequest{Proofs: r.Header.Values("DPoP"), Method: r.Method, Url: address(r, co)},
		RequiredResource: co.ConversationsResource,
	})
	if err != nil {
		return app.Caller{}, "", err
	}
	caller := app.Caller{
		Scope: co.Scope, SessionID: got.GetSessionId(), ClientID: got.GetClientId(), AgentName: got.GetAgentName(), UserID: got.GetUserId(),
		SignedIn: got.GetSignedIn(), Account: got.GetAccount(), Scopes: got.GetScopes(),
	}
	if t := got.GetExpireTime(); t != nil {
		caller.Expires = t.AsTime()
	}
	return caller, got.GetDpopNonce(), checkExtensions(co, got.GetExtensions())
}

// checkExtensions refuses an agent whose document doesn't list what the Company's
// conversations can't do without (Poppy 3.3).
func checkExtensions(co *directory.Company, listed []string) error {
	for _, name := range co.RequiredExtensions {
		if !slices.Contains(listed, name) {
			return problem.New(problem.Forbidden, problem.ExtensionRequired, "poppy-0.1/3.3#12", "conversations here need an extension that the agent's document doesn't list").
				WithExtra("extension", name)
		}
	}
	return nil
}

// address is the URL of the endpoint that was matched, as configured.
func address(r *http.Request, co *directory.Company) string {
	id := r.PathValue("id")
	if id == "" {
		return co.Issuer.ConversationsEndpoint()
	}
	return co.Issuer.ConversationEndpoint(id, lastSegment(r.Pattern))
}

func lastSegment(pattern string) string {
	for i := len(pattern) - 1; i >= 0; i-- {
		if pattern[i] == '/' {
			return pattern[i+1:]
		}
	}
	return pattern
}

// writeError answers err, unless the client has gone.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		httpx.WriteOAuthError(w, r, err, httpx.Resource)
	}
}

func (h *Handlers) start(w http.ResponseWriter, r *http.Request, co *directory.Company, caller app.Caller) (int, []byte, error) {
	q, err := conversation.ParsePostQuery(r.URL.RawQuery)
	if err != nil {
		return 0, nil, err
	}
	body, err := httpx.ReadBody(w, r, conversation.MaxBody)
	if err != nil {
		return 0, nil, err
	}
	start, err := conversation.ParseStart(body)
	if err != nil {
		return 0, nil, err
	}
	accepted, err := h.App.Start(r.Context(), co, caller, start, q)
	if err != nil {
		return 0, nil, err
	}
	return h.posted(r.Context(), caller, accepted, q)
}

func (h *Handlers) send(w http.ResponseWriter, r *http.Request, co *directory.Company, caller app.Caller) (int, []byte, error) {
	q, err := conversation.ParsePostQuery(r.URL.RawQuery)
	if err != nil {
		return 0, nil, err
	}
	body, err := httpx.ReadBody(w, r, conversation.MaxBody)
	if err != nil {
		return 0, nil, err
	}
	message, err := conversation.ParseSend(body)
	if err != nil {
		return 0, nil, err
	}
	accepted, err := h.App.Send(r.Context(), co, caller, r.PathValue("id"), message, q)
	if err != nil {
		return 0, nil, err
	}
	return h.posted(r.Context(), caller, accepted, q)
}

// posted answers a message: at once, or with wait as a read (Poppy 7.3).
func (h *Handlers) posted(ctx context.Context, caller app.Caller, accepted app.Accepted, q conversation.ReadQuery) (int, []byte, error) {
	status := http.StatusAccepted
	if accepted.First {
		status = http.StatusCreated
	}
	if !q.HasWait {
		body, err := conversation.EncodePost(conversation.PostResponse{
			ConversationID: accepted.ConversationID, Status: accepted.Status, Responder: accepted.Responder,
		})
		return status, body, err
	}
	leave, ok := h.seats.takeAny()
	if !ok {
		q.Wait = 0 // the message was accepted: what there is now is the answer
	} else {
		defer leave()
	}
	read, err := h.App.ReadReply(ctx, caller, accepted, q, httpx.DrainDone(ctx))
	if err != nil {
		return 0, nil, err
	}
	body, err := conversation.EncodeRead(read)
	return status, body, err
}

func (h *Handlers) close(w http.ResponseWriter, r *http.Request, _ *directory.Company, caller app.Caller) (int, []byte, error) {
	if err := readEmpty(w, r); err != nil {
		return 0, nil, err
	}
	closed, err := h.App.Close(r.Context(), caller, r.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	out, err := conversation.EncodePost(closed)
	return http.StatusOK, out, err
}

// readEmpty reads the empty object of a handoff or close. They have no parameters, but
// a token in their URL is as leaked as anywhere.
func readEmpty(w http.ResponseWriter, r *http.Request) error {
	if _, err := conversation.ParsePostQuery(r.URL.RawQuery); err != nil {
		return err
	}
	body, err := httpx.ReadBody(w, r, conversation.MaxBody)
	if err != nil {
		return err
	}
	return conversation.ParseEmptyBody(body)
}
