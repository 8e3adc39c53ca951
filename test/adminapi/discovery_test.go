package adminapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/admin"
	"github.com/poppyfield/poppyfield/services/discovery"
)

// empty is an Internet where nothing answers.
type empty struct {
	relayv1.UnimplementedEgressServiceServer
}

func (empty) LookupTxt(context.Context, *relayv1.LookupTxtRequest) (*relayv1.LookupTxtResponse, error) {
	return &relayv1.LookupTxtResponse{}, nil
}

func (empty) Fetch(context.Context, *relayv1.FetchRequest) (*relayv1.FetchResponse, error) {
	return &relayv1.FetchResponse{Failure: "dns", Detail: "the host does not resolve"}, nil
}

// api is the admin API in front of a real discovery.
type api struct {
	http     *httptest.Server
	operator string
}

func start(t *testing.T, d *db.DB) *api {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	b, err := bus.Connect(t.Context(), bus.Config{Embedded: &bus.Embedded{StoreDir: t.TempDir()}})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	server, err := rpc.NewServer(rpc.ServerConfig{
		Name: "discovery", Secret: strings.Repeat("s", 32), Log: log,
		Allow: rpc.Allow{
			adminv1.CompanyService_ServiceDesc.ServiceName: {"admin"}, adminv1.DomainService_ServiceDesc.ServiceName: {"admin"},
			adminv1.SignInSetupService_ServiceDesc.ServiceName:   {"admin"},
			adminv1.UsageService_ServiceDesc.ServiceName:         {"admin"},
			directoryv1.DirectoryService_ServiceDesc.ServiceName: {"admin"}, relayv1.EgressService_ServiceDesc.ServiceName: {"discovery"},
		},
	})
	require.NoError(t, err)
	relay, err := server.Dial("discovery")
	require.NoError(t, err)
	relayv1.RegisterEgressServiceServer(server, empty{})
	ring, err := keys.NewRing(1, map[byte][]byte{1: bytes.Repeat([]byte{1}, keys.RootSize)})
	require.NoError(t, err)
	discovery.New(discovery.Config{HostedDomain: "poppyfield.test"}, discovery.Deps{
		DB: d, Bus: b, Egress: relayv1.NewEgressServiceClient(relay), Deliveries: relayv1.NewDeliveryServiceClient(relay), Keys: ring, Now: clock.System, Log: log,
	}).Register(server)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(nil) }()
	owner, err := server.Dial("admin")
	require.NoError(t, err)
	s, err := admin.New(t.Context(), admin.Config{}, admin.Deps{
		DB: d, Bus: b, Keys: ring, Now: clock.System, Log: log,
		Owners: admin.Owners{Discovery: owner, Auth: owner, Relay: owner, Sessions: owner, Conversations: owner},
	})
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	a := &api{http: httptest.NewServer(s.HTTP())}
	t.Cleanup(func() {
		a.http.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, s.Stop(ctx))
		require.NoError(t, owner.Close())
		require.NoError(t, relay.Close())
		server.Stop()
		<-done
	})
	a.operator, err = admin.CreateOperatorKey(t.Context(), d, "test", time.Time{})
	require.NoError(t, err)
	return a
}

func (a *api) call(t *testing.T, key, verb, path, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), verb, a.http.URL+"/v1/"+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := a.http.Client().Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	var out map[string]any
	require.NoError(t, json.Unmarshal(raw, &out), string(raw))
	return res.StatusCode, out
}

func (a *api) ok(t *testing.T, key, verb, path, body string) map[string]any {
	t.Helper()
	status, out := a.call(t, key, verb, path, body)
	require.Equal(t, http.StatusOK, status, "%s %s: %v", verb, path, out)
	return out
}

func text(t *testing.T, m map[string]any, name string) string {
	t.Helper()
	s, ok := m[name].(string)
	require.True(t, ok, "%s in %v", name, m)
	return s
}

// company makes a Company with one domain and a key, as an operator does.
func (a *api) company(t *testing.T, slug string) (name, key, domain string) {
	t.Helper()
	name = text(t, a.ok(t, a.operator, "POST", "companies", `{"slug":"`+slug+`","display_name":"`+slug+`"}`), "name")
	key = text(t, a.ok(t, a.operator, "POST", name+"/apiKeys", `{"scopes":["*"]}`), "key")
	domain = text(t, a.ok(t, key, "POST", name+"/domains", `{"domain":"`+slug+`.example"}`), "name")
	return name, key, domain
}

func TestCompany_FromItsCreationToItsDocuments(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d)
		name, key, domain := a.company(t, "noodles")
		c := a.ok(t, key, "GET", name, "")
		require.Equal(t, "COMPANY_STATE_SETTING_UP", c["state"])
		require.Equal(t, "https://noodles.poppyfield.test", c["issuer"])
		require.Contains(t, text(t, c, "creator"), "operatorKeys/")

		settings := a.ok(t, key, "PATCH", name+"/discoverySettings", `{"conversations_enabled":true,"conversations_resource":true,"custom_scopes":{"bookings":"See bookings"}}`)
		require.Equal(t, true, settings["conversations_enabled"])
		settings = a.ok(t, key, "PATCH", name+"/discoverySettings", `{"conversations_resource":false,"etag":`+quote(t, settings["etag"])+`}`)
		require.Equal(t, false, settings["conversations_resource"], "false can be set")
		require.NotEmpty(t, settings["custom_scopes"], "what isn't named stays")

		status, p := a.call(t, key, "PATCH", name, `{"display_name":"Noodle Bar","etag":"\"zz\""}`)
		require.Equal(t, http.StatusPreconditionFailed, status)
		require.Equal(t, "ETAG_MISMATCH", p["reason"])
		require.Equal(t, "Noodle Bar", a.ok(t, key, "PATCH", name, `{"display_name":"Noodle Bar"}`)["display_name"])
		require.Equal(t, "COMPANY_STATE_ACTIVE", a.ok(t, key, "POST", name+":publish", "{}")["state"])
		require.Equal(t, "DOMAIN_STATE_PENDING", a.ok(t, key, "POST", domain+":check", "{}")["state"])
		require.Len(t, a.ok(t, key, "GET", name+"/domains", "")["domains"], 1)
		require.Equal(t, "COMPANY_STATE_DISABLED", a.ok(t, a.operator, "POST", name+":disable", "{}")["state"])
	})
}

// MT-03 with what is really stored: nothing of the other Company changes, whatever is tried.
func TestMT03_NothingOfAnotherCompanyChanges(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d)
		mine, key, _ := a.company(t, "mine")
		theirs, theirKey, theirDomain := a.company(t, "theirs")
		state := func() []map[string]any {
			return []map[string]any{
				a.ok(t, theirKey, "GET", theirs, ""), a.ok(t, theirKey, "GET", theirs+"/discoverySettings", ""),
				a.ok(t, theirKey, "GET", theirs+"/limits", ""), a.ok(t, theirKey, "GET", theirs+"/domains", ""),
			}
		}
		before := state()
		id := theirDomain[strings.LastIndexByte(theirDomain, '/')+1:]
		var answers []map[string]any
		for _, c := range []struct{ verb, path, body string }{
			{"GET", mine + "/domains/dom_missing", ""}, // how a missing one of the own Company looks
			{"GET", theirs, ""},
			{"PATCH", theirs, `{"display_name":"taken"}`},
			{"POST", theirs + ":publish", `{}`},
			{"PATCH", theirs + "/discoverySettings", `{"organization_name":"taken"}`},
			{"PATCH", theirs + "/limits", `{"requests_per_minute":1}`},
			{"POST", theirs + "/domains", `{"domain":"more.example"}`},
			{"GET", theirDomain, ""},
			{"DELETE", theirDomain, ""},
			{"POST", theirDomain + ":check", `{}`},
			{"GET", mine + "/domains/" + id, ""},
			{"DELETE", mine + "/domains/" + id, ""},
			{"POST", mine + "/domains/" + id + ":check", `{}`},
		} {
			status, p := a.call(t, key, c.verb, c.path, c.body)
			require.Equal(t, http.StatusNotFound, status, "%s %s", c.verb, c.path)
			delete(p, "request_id")
			answers = append(answers, p)
		}
		for _, p := range answers {
			require.Equal(t, answers[0], p)
		}
		require.Equal(t, before, state())
	})
}

func quote(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}
