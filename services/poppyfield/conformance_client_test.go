package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// newClient is a client of the Internet: the names of the world lead there, every
// other to the installation. It follows no redirect.
func (in *installation) newClient(t testing.TB, roots *x509.CertPool, world map[string]string) *http.Client {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			to := in.address
			if at, ok := world[host]; ok {
				to = at
			}
			var d net.Dialer
			return d.DialContext(ctx, network, to)
		},
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport: transport, Timeout: 60 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// answer is a response as its reader has it.
type answer struct {
	status int
	header http.Header
	raw    []byte
	body   map[string]any // of JSON objects
	took   time.Duration
}

func (in *installation) do(t testing.TB, r *http.Request) answer {
	t.Helper()
	a, err := in.try(r)
	require.NoError(t, err)
	return a
}

// try is do for goroutines of a test.
func (in *installation) try(r *http.Request) (answer, error) {
	begun := time.Now()
	res, err := in.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	a := answer{status: res.StatusCode, header: res.Header}
	if a.raw, err = io.ReadAll(res.Body); err != nil {
		return answer{}, err
	}
	a.took = time.Since(begun)
	if len(a.raw) > 0 && a.raw[0] == '{' {
		if err := json.Unmarshal(a.raw, &a.body); err != nil {
			return answer{}, err
		}
	}
	return a, nil
}

func (in *installation) get(t testing.TB, u string, change ...func(*http.Request)) answer {
	t.Helper()
	return in.do(t, request(t, http.MethodGet, u, "", change...))
}

func request(t testing.TB, method, u, body string, change ...func(*http.Request)) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, u, strings.NewReader(body))
	require.NoError(t, err)
	for _, c := range change {
		c(r)
	}
	return r
}

func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Del(name)
		for _, v := range values {
			r.Header.Add(name, v)
		}
	}
}

func (a answer) str(name string) string {
	s, _ := a.body[name].(string)
	return s
}

// is requires a status and, unless code is empty, an error code in JSON.
func (a answer) is(t testing.TB, status int, code string) answer {
	t.Helper()
	require.Equal(t, status, a.status, "%s", a.raw)
	if code != "" {
		require.Equal(t, code, a.str("error"), "%s", a.raw)
		require.Equal(t, "application/json", a.header.Get("Content-Type"))
		// Nothing of how the server is made gets out.
		for _, word := range []string{"strconv", "sql", "pq:", "pgx", "rpc error", "goroutine", ".go:", "unmarshal"} {
			require.NotContains(t, strings.ToLower(string(a.raw)), word)
		}
	}
	return a
}

// challenged requires a DPoP challenge with the error's code.
func (a answer) challenged(t testing.TB, code string) answer {
	t.Helper()
	got := a.header.Get("WWW-Authenticate")
	require.True(t, strings.HasPrefix(got, "DPoP "), "%q", got)
	require.Contains(t, got, `error="`+code+`"`)
	return a
}

// Endpoints of a Company, as an agent learns them.
func (co *company) tokenEndpoint() string         { return co.issuer + "/oauth/token" }
func (co *company) revocationEndpoint() string    { return co.issuer + "/oauth/revoke" }
func (co *company) conversationsEndpoint() string { return co.issuer + "/poppy/conversations" }

// token posts a form to the token endpoint with the given DPoP headers.
func (co *company) token(t testing.TB, form url.Values, proofs ...string) answer {
	t.Helper()
	return co.in.do(t, co.tokenRequest(t, form, proofs...))
}

func (co *company) tokenRequest(t testing.TB, form url.Values, proofs ...string) *http.Request {
	t.Helper()
	return request(t, http.MethodPost, co.tokenEndpoint(), form.Encode(),
		header("Content-Type", "application/x-www-form-urlencoded"), header("DPoP", proofs...))
}

// form is a right request for a Session Token; change makes it another one.
func (co *company) form(t testing.TB, a *fixture.Agent, user string, change ...func(url.Values)) url.Values {
	t.Helper()
	f := a.TokenForm(t, user, co.tokenEndpoint(), time.Now())
	for _, c := range change {
		c(f)
	}
	return f
}

// with sets a parameter of a form.
func with(name, value string) func(url.Values) {
	return func(f url.Values) { f.Set(name, value) }
}

// without takes a parameter out of a form.
func without(name string) func(url.Values) { return func(f url.Values) { f.Del(name) } }

// proof is a right proof for the token endpoint.
func (co *company) proof(t testing.TB, key *jose.Signer, change ...fixture.Change) string {
	t.Helper()
	return fixture.Proof(t, key, http.MethodPost, co.tokenEndpoint(), "", time.Now(), change...)
}

// session is a Session of a User at a Company, with the token it uses now.
type session struct {
	co              *company
	agent           *fixture.Agent
	user, id, token string
	key             *jose.Signer
	nonce           string
}

// open starts a Session.
func (co *company) open(t testing.TB, a *fixture.Agent, user string) *session {
	t.Helper()
	s := &session{co: co, agent: a, user: user, key: fixture.NewKey(t)}
	got := co.token(t, co.form(t, a, user), co.proof(t, s.key)).is(t, http.StatusOK, "")
	s.id, s.token = got.str("session_id"), got.str("access_token")
	require.NotEmpty(t, s.id)
	require.NotEmpty(t, s.token)
	return s
}

// visitor opens a Session with an agent and a User of its own.
func (co *company) visitor(t testing.TB) *session {
	t.Helper()
	return co.open(t, co.in.agent(t), "usr_"+fixture.RandomID())
}

// again opens another Session of the same agent and User.
func (s *session) again(t testing.TB) *session {
	t.Helper()
	return s.co.open(t, s.agent, s.user)
}

// request is a right request of the Session to a path below the issuer.
func (s *session) request(t testing.TB, method, path string, body any, change ...func(*http.Request)) *http.Request {
	t.Helper()
	text, ok := body.(string)
	if !ok && body != nil {
		raw, err := json.Marshal(body)
		require.NoError(t, err)
		text = string(raw)
	}
	var nonce []fixture.Change
	if s.nonce != "" {
		nonce = append(nonce, fixture.Claim("nonce", s.nonce))
	}
	at, _, _ := strings.Cut(s.co.issuer+path, "?")
	return request(t, method, s.co.issuer+path, text, append([]func(*http.Request){
		header("Authorization", "DPoP "+s.token),
		header("DPoP", fixture.Proof(t, s.key, method, at, s.token, time.Now(), nonce...)),
		func(r *http.Request) {
			if method == http.MethodPost {
				r.Header.Set("Content-Type", "application/json")
			}
		},
	}, change...)...)
}

func (s *session) do(t testing.TB, method, path string, body any, change ...func(*http.Request)) answer {
	t.Helper()
	return s.co.in.do(t, s.request(t, method, path, body, change...))
}

func (s *session) post(t testing.TB, path string, body any, change ...func(*http.Request)) answer {
	t.Helper()
	return s.do(t, http.MethodPost, path, body, change...)
}

const conversationsPath = "/poppy/conversations"

func messagesPath(id string) string { return conversationsPath + "/" + id + "/messages" }
func eventsPath(id string) string   { return conversationsPath + "/" + id + "/events" }
func closePath(id string) string    { return conversationsPath + "/" + id + "/close" }
func handoffPath(id string) string  { return conversationsPath + "/" + id + "/handoff" }

// object is JSON in the making.
type object = map[string]any

// text is a request body with a new message.
func text(words string) object { return message(object{"text": words}) }

// message is a request body with a message; id and sender are filled in unless given.
func message(fields object) object {
	m := object{"id": "msg_" + fixture.RandomID(), "sender": "agent"}
	for name, value := range fields {
		if value == nil {
			delete(m, name)
			continue
		}
		m[name] = value
	}
	return object{"message": m}
}

// talk starts a conversation and returns its id.
func (s *session) talk(t testing.TB, words string) string {
	t.Helper()
	id := s.post(t, conversationsPath, text(words)).is(t, http.StatusCreated, "").str("conversation_id")
	require.NotEmpty(t, id)
	return id
}

// read reads a conversation; query is without its question mark.
func (s *session) read(t testing.TB, id, query string, change ...func(*http.Request)) answer {
	t.Helper()
	path := eventsPath(id)
	if query != "" {
		path += "?" + query
	}
	return s.do(t, http.MethodGet, path, nil, change...)
}

// events reads a conversation from its beginning.
func (s *session) events(t testing.TB, id string) []event {
	t.Helper()
	return s.read(t, id, "").is(t, http.StatusOK, "").events(t)
}

// event is one event of a conversation.
type event struct {
	ID        string         `json:"id"`
	Type      string         `json:"type"`
	CreatedAt string         `json:"created_at"`
	Status    string         `json:"status"`
	Responder string         `json:"responder"`
	Message   map[string]any `json:"message"`
	// Of the other types.
	Error          string `json:"error"`
	Scope          string `json:"scope"`
	Reason         string `json:"reason"`
	ConversationID string `json:"conversation_id"`
}

// words is the text of a message event.
func (e event) words() string {
	s, _ := e.Message["text"].(string)
	return s
}

func (e event) from(role string) bool { return e.Type == "message" && e.Message["role"] == role }

func (a answer) events(t testing.TB) []event {
	t.Helper()
	var got struct {
		Events []event `json:"events"`
	}
	require.NoError(t, json.Unmarshal(a.raw, &got))
	return got.Events
}

// settled waits until nothing is in progress and returns all events.
func (s *session) settled(t testing.TB, id string) []event {
	t.Helper()
	var got answer
	until(t, "the conversation is idle", func() bool {
		got = s.read(t, id, "").is(t, http.StatusOK, "")
		return got.str("status") != "working"
	})
	return got.events(t)
}

// directBelow starts a Direct Conversation below parent.
func (s *session) directBelow(t testing.TB, parent, words string) answer {
	t.Helper()
	body := message(object{"text": words, "sender": "human"})
	body["parent_conversation_id"] = parent
	return s.post(t, conversationsPath, body)
}

// shape is the types and speakers of events, in order; a state with a person has a star.
func shape(events []event) []string {
	out := make([]string, len(events))
	for i, e := range events {
		switch e.Type {
		case "message":
			role, _ := e.Message["role"].(string)
			out[i] = role
		case "state":
			out[i] = e.Status
			if e.Responder == "human" {
				out[i] += "*"
			}
		default:
			out[i] = e.Type
		}
	}
	return out
}

// raw sends bytes over TLS and reads what comes back, for what no client would send.
func (in *installation) rawRequest(t testing.TB, sni, text string) []byte {
	t.Helper()
	conn, err := tls.Dial("tcp", in.address, &tls.Config{RootCAs: in.ca.Pool(), ServerName: sni, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	defer func() { _ = conn.Close() }() // what came back is all that counts
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.Copy(conn, bytes.NewReader([]byte(text)))
	require.NoError(t, err)
	var out bytes.Buffer
	_, _ = io.Copy(&out, conn) // the server may cut the connection
	return out.Bytes()
}

func now() time.Time { return time.Now() }

// proofFor is a proof of the Session's key and token for another request.
func (s *session) proofFor(t testing.TB, method, u string, change ...fixture.Change) string {
	t.Helper()
	return fixture.Proof(t, s.key, method, u, s.token, now(), change...)
}

// rootProof is a proof for a token endpoint that isn't the Company's.
func (s *session) rootProof(t testing.TB, u string) string {
	t.Helper()
	return fixture.Proof(t, s.key, http.MethodPost, u, "", now())
}
