package whole

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/fixture"
)

// A Recorder collects what must not be seen: every credential that passes through a
// client, and the canaries that a test plants. It keeps the bodies of error answers.
type Recorder struct {
	base http.RoundTripper

	mu          sync.Mutex
	credentials map[string]string // value to what it is
	texts       map[string]string
	failures    []string
}

// Record makes client record. It also adds headers of credentials to every request, as
// a careless agent may send them, which nothing may take along.
func Record(client *http.Client) *Recorder {
	r := &Recorder{base: client.Transport, credentials: map[string]string{}, texts: map[string]string{}}
	client.Transport = r
	return r
}

// Credential plants a canary that stands for a credential: nobody may store or show it.
func (r *Recorder) Credential(what string) string {
	value := "canary-" + what + "-" + fixture.RandomID()
	r.keep(what, value)
	return value
}

// Text plants a canary that stands for what people say: only the database may have it.
func (r *Recorder) Text(what string) string {
	value := "canary-" + what + "-" + fixture.RandomID()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts[value] = what
	return value
}

func (r *Recorder) keep(what, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(value) < 16 {
		return // too short to be looked for
	}
	r.credentials[value] = what
	if parts := strings.Split(value, "."); len(parts) == 3 && len(parts[2]) > 40 { // a JWT: its parts give it away too
		r.credentials[parts[1]], r.credentials[parts[2]] = what+"'s claims", what+"'s signature"
	}
}

// keepShort keeps a code that people type, with its hyphen and without.
func (r *Recorder) keepShort(what, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.credentials[value], r.credentials[strings.ReplaceAll(value, "-", "")] = what, what
}

// RoundTrip implements http.RoundTripper.
func (r *Recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Poppy-Session", r.Credential("Poppy-Session"))
	request.Header.Set("Cookie", strings.TrimPrefix(request.Header.Get("Cookie")+"; session="+r.Credential("cookie"), "; "))
	_, credentials, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	r.keep("Authorization", credentials)
	r.keep("DPoP", request.Header.Get("DPoP"))
	if request.Header.Get("Content-Type") == "application/x-www-form-urlencoded" && request.GetBody != nil {
		if err := r.keepForm(request); err != nil {
			return nil, err
		}
	}
	response, err := r.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	_ = response.Body.Close() // it is read
	response.Body = io.NopCloser(bytes.NewReader(body))
	var made struct {
		AccessToken  string `json:"access_token"`
		RefreshToken string `json:"refresh_token"`
		Secret, Key  string
	}
	if json.Unmarshal(body, &made) == nil {
		r.keep("access_token", made.AccessToken)
		r.keep("refresh_token", made.RefreshToken)
		r.keep("webhook secret", made.Secret)
		r.keep("API key", made.Key)
	}
	if response.StatusCode >= http.StatusBadRequest {
		r.mu.Lock()
		r.failures = append(r.failures, fmt.Sprintf("%s %s: %d: %s %s", request.Method, request.URL.Path, response.StatusCode, response.Header, body))
		r.mu.Unlock()
	}
	return response, err
}

func (r *Recorder) keepForm(request *http.Request) error {
	body, err := request.GetBody()
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	form, err := url.ParseQuery(string(raw))
	if err != nil {
		return nil //nolint:nilerr // what is no form has no fields
	}
	for _, name := range []string{"assertion", "client_assertion", "token", "code", "code_verifier", "refresh_token", "device_code"} {
		r.keep(name, form.Get(name))
	}
	return nil
}

// Failures are all error answers so far.
func (r *Recorder) Failures() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.failures...)
}

// Hides fails when anything that was kept is in text, which comes from where.
func (r *Recorder) Hides(t testing.TB, where string, text []byte) {
	t.Helper()
	require.NotEmpty(t, text, "%s: nothing to look at", where)
	r.HidesCredentials(t, where, text)
	r.mu.Lock()
	defer r.mu.Unlock()
	for value, what := range r.texts {
		require.False(t, bytes.Contains(text, []byte(value)), "%s shows %s: %s", where, what, around(text, value))
	}
}

// HidesCredentials fails when a credential is in text, also as hexadecimal or, of a
// webhook secret, as bytes. Messages may be there.
func (r *Recorder) HidesCredentials(t testing.TB, where string, text []byte) {
	t.Helper()
	r.HidesCredentialsBut(t, where, text)
}

// HidesCredentialsBut is HidesCredentials for a place that some kinds belong to.
func (r *Recorder) HidesCredentialsBut(t testing.TB, where string, text []byte, kinds ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NotEmpty(t, r.credentials)
	for value, what := range r.credentials {
		if slices.Contains(kinds, what) {
			continue
		}
		forms := []string{value, hex.EncodeToString([]byte(value))}
		if key, is := strings.CutPrefix(value, "whsec_"); is {
			raw, err := base64.StdEncoding.DecodeString(key)
			require.NoError(t, err)
			forms = append(forms, key, string(raw), hex.EncodeToString(raw))
		}
		for _, form := range forms {
			require.False(t, bytes.Contains(text, []byte(form)), "%s shows %s: %s", where, what, around(text, form))
		}
	}
}

// around is a value with what is about it.
func around(text []byte, value string) string {
	at := bytes.Index(text, []byte(value))
	return fmt.Sprintf("%q", text[max(0, at-200):min(len(text), at+len(value)+100)])
}
