package whole

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// maxAnswer bounds what an agent reads of an answer.
const maxAnswer = 4 << 20

// Endpoints are those of a Company, as its documents name them.
type Endpoints struct {
	Issuer        string
	Token         string `json:"token_endpoint"`
	Revocation    string `json:"revocation_endpoint"`
	Conversations string
}

// An Agent is one User's personal agent at one Company. Its methods may be called at
// the same time, but for StartSession.
type Agent struct {
	*fixture.Agent
	Endpoints
	User  string
	Token string

	t      testing.TB
	client *http.Client
	proofs *jose.Signer
}

// FindCompany discovers the Company of a domain, the way of the protocol: from the domain's
// poppy.json through its redirect to the issuer's metadata.
func FindCompany(ctx context.Context, client *http.Client, origin string) (Endpoints, error) {
	at := origin + "/.well-known/poppy.json"
	answer, err := get(ctx, client, at)
	if err != nil {
		return Endpoints{}, err
	}
	if answer.Status != http.StatusFound {
		return Endpoints{}, fmt.Errorf("%s: %d: %s", at, answer.Status, answer.Body)
	}
	var document struct {
		Auth  struct{ Issuer string }
		Agent struct {
			Protocols []struct{ Type, Endpoint string }
		}
	}
	if err := getJSON(ctx, client, answer.Header.Get("Location"), &document); err != nil {
		return Endpoints{}, err
	}
	issuer, err := url.Parse(document.Auth.Issuer)
	if err != nil {
		return Endpoints{}, err
	}
	// RFC 8414 3.1: between the host and the path.
	metadata := "https://" + issuer.Host + "/.well-known/oauth-authorization-server" + issuer.Path
	var e Endpoints
	if err := getJSON(ctx, client, metadata, &e); err != nil {
		return Endpoints{}, err
	}
	if e.Issuer != document.Auth.Issuer || len(document.Agent.Protocols) == 0 {
		return Endpoints{}, fmt.Errorf("the metadata %+v does not fit the document %+v", e, document)
	}
	e.Conversations = document.Agent.Protocols[0].Endpoint
	return e, nil
}

func get(ctx context.Context, client *http.Client, at string) (Answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return Answer{}, err
	}
	return do(client, r)
}

func getJSON(ctx context.Context, client *http.Client, at string, out any) error {
	answer, err := get(ctx, client, at)
	if err != nil {
		return err
	}
	if answer.Status != http.StatusOK {
		return fmt.Errorf("%s: %d: %s", at, answer.Status, answer.Body)
	}
	return json.Unmarshal(answer.Body, out)
}

// NewAgent makes an agent for a User of its own.
func NewAgent(t testing.TB, o *Outside, client *http.Client, e Endpoints) *Agent {
	t.Helper()
	return &Agent{Agent: o.Identity, Endpoints: e, User: "user-" + fixture.RandomID(), t: t, client: client, proofs: fixture.NewKey(t)}
}

// Answer is an HTTP answer, read to its end.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

func do(client *http.Client, r *http.Request) (Answer, error) {
	response, err := client.Do(r)
	if err != nil {
		return Answer{}, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return Answer{Status: response.StatusCode, Header: response.Header, Body: body}, errors.Join(err, response.Body.Close())
}

// Form posts a form with a proof for htu, which is the endpoint itself unless a test
// is about another.
func (a *Agent) Form(ctx context.Context, endpoint, htu string, form url.Values) (Answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return Answer{}, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("DPoP", a.Proof(http.MethodPost, htu, ""))
	return do(a.client, r)
}

// Proof is a new DPoP Proof with the agent's key.
func (a *Agent) Proof(method, htu, token string, changes ...fixture.Change) string {
	return fixture.Proof(a.t, a.proofs, method, htu, token, time.Now(), changes...)
}

// StartSession starts a Session and keeps its token.
func (a *Agent) StartSession(ctx context.Context) error {
	answer, err := a.Form(ctx, a.Endpoints.Token, a.Endpoints.Token, a.TokenForm(a.t, a.User, a.Endpoints.Token, time.Now()))
	if err != nil {
		return err
	}
	var token struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal(answer.Body, &token); err != nil || token.AccessToken == "" {
		return &RefusedError{answer}
	}
	a.Token = token.AccessToken
	return nil
}

// RefusedError is an answer with a status other than that of success.
type RefusedError struct{ Answer }

func (e *RefusedError) Error() string { return fmt.Sprintf("%d: %s", e.Status, e.Body) }

// Call makes a request with the Session Token and a proof. A nil body sends none.
func (a *Agent) Call(ctx context.Context, method, address string, body any, changes ...fixture.Change) (Answer, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return Answer{}, err
	}
	if body == nil {
		raw = nil
	}
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(raw))
	if err != nil {
		return Answer{}, err
	}
	if raw != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	htu, _, _ := strings.Cut(address, "?")
	r.Header.Set("Authorization", "DPoP "+a.Token)
	r.Header.Set("DPoP", a.Proof(method, htu, a.Token, changes...))
	return do(a.client, r)
}

// Page is what a read of events gives.
type Page struct {
	ConversationID string `json:"conversation_id"`
	Events         []Event
	Cursor         string
	HasMore        bool `json:"has_more"`
	Status         string
	Responder      string
}

// Event is an event as the agent sees it.
type Event struct {
	ID      string
	Type    string
	Status  string
	Message struct {
		ID, Role, Sender, Text string
	}
}

// NewMessage is the body of a new message.
func NewMessage(id, text string) map[string]any {
	return map[string]any{"message": map[string]any{"id": id, "sender": "human", "text": text}}
}

// Open starts a conversation and returns its id.
func (a *Agent) Open(ctx context.Context, messageID, text string) (string, error) {
	answer, err := a.Call(ctx, http.MethodPost, a.Conversations, NewMessage(messageID, text))
	if err != nil {
		return "", err
	}
	var page Page
	if err := json.Unmarshal(answer.Body, &page); err != nil || answer.Status/100 != 2 {
		return "", &RefusedError{answer}
	}
	return page.ConversationID, nil
}

// Send sends a message; an answer other than of success is an error.
func (a *Agent) Send(ctx context.Context, conversation, messageID, text string) error {
	answer, err := a.Call(ctx, http.MethodPost, a.Conversations+"/"+conversation+"/messages", NewMessage(messageID, text))
	if err == nil && answer.Status/100 != 2 {
		err = &RefusedError{answer}
	}
	return err
}

// Read reads one page of events after a cursor, which may be empty.
func (a *Agent) Read(ctx context.Context, conversation, cursor string, wait int) (Page, error) {
	query := url.Values{"wait": {fmt.Sprint(wait)}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	answer, err := a.Call(ctx, http.MethodGet, a.Conversations+"/"+conversation+"/events?"+query.Encode(), nil)
	if err != nil {
		return Page{}, err
	}
	var page Page
	if err := json.Unmarshal(answer.Body, &page); err != nil || answer.Status != http.StatusOK {
		return Page{}, &RefusedError{answer}
	}
	return page, nil
}

// ReadUntil reads from a cursor on until done says that the events since are enough,
// and returns them with the cursor after them.
func (a *Agent) ReadUntil(ctx context.Context, conversation, cursor string, done func([]Event) bool) ([]Event, string, error) {
	var events []Event
	for {
		page, err := a.Read(ctx, conversation, cursor, 20)
		if err != nil {
			return events, cursor, err
		}
		events, cursor = append(events, page.Events...), page.Cursor
		if !page.HasMore && done(events) {
			return events, cursor, nil
		}
		if err := ctx.Err(); err != nil {
			return events, cursor, err
		}
	}
}

// Idle says that the last state among events is idle.
func Idle(events []Event) bool {
	status := ""
	for _, e := range events {
		if e.Type == "state" {
			status = e.Status
		}
	}
	return status == "idle"
}

// Texts are the messages among events, with who said them: "user: hello".
func Texts(events []Event) []string {
	var out []string
	for _, e := range events {
		if e.Type == "message" {
			out = append(out, e.Message.Role+": "+e.Message.Text)
		}
	}
	return out
}

// Persist tries until it is done or refused: a server that is away says nothing about
// the request, so it is made once more.
func Persist(ctx context.Context, try func() error) error {
	for {
		err := try()
		var refused *RefusedError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &refused) && refused.Status < http.StatusInternalServerError && refused.Status != http.StatusTooManyRequests:
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}
