package poppy

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

const orders = "/orders/7"

func TestVerify_LocalAsksOnceForATokenAndThenNoMore(t *testing.T) {
	r := newRig(t, nil)
	require.True(t, r.asks(t, "GET", orders))
	require.False(t, r.asks(t, "GET", orders))
	require.False(t, r.asks(t, "HEAD", "/orders/8"))
	require.True(t, r.asks(t, "POST", orders), "what may not be repeated is judged where every proof is remembered")
	d := r.verify(t, r.request(t, "GET", orders))
	require.Equal(t, session, d.Session.Name)
	require.Equal(t, "https://example.com/openapi.json", d.API)
	refused := r.verify(t, r.request(t, "GET", "/account"))
	require.Equal(t, []any{false, 403, "sign_in_required"}, []any{refused.Allowed, refused.Status, refused.Reason})
	require.Equal(t, session, refused.Session.Name, "who it is, is known")
	require.Equal(t, "access_denied", r.verify(t, r.request(t, "GET", "/users")).Reason)
}

func TestVerify_LocalKnowsNothingLongerThanItIsTold(t *testing.T) {
	r := newRig(t, nil)
	known := func() {
		t.Helper()
		r.asks(t, "GET", orders)
		require.False(t, r.asks(t, "GET", orders))
	}
	known()
	r.server.changed(session)
	r.beat(t)
	require.True(t, r.asks(t, "GET", orders), "something of the Session changed")
	known()
	r.server.changed(company + "/sessions/ses_2")
	r.beat(t)
	require.False(t, r.asks(t, "GET", orders), "another Session")
	r.server.all()
	r.beat(t)
	require.True(t, r.asks(t, "GET", orders), "anything may have changed")
	known()
	r.server.now.Advance(time.Second)
	require.False(t, r.asks(t, "GET", orders))
	r.server.now.Advance(time.Millisecond)
	require.True(t, r.asks(t, "GET", orders), "the last heartbeat is older than a second")
	r.beat(t)
	known()
	r.server.now.Advance(-time.Minute)
	require.True(t, r.asks(t, "GET", orders), "a clock that was set back makes nothing younger")
	r.server.now.Advance(time.Minute)
	r.beat(t)
	known()
	r.server.now.Advance(30 * time.Second)
	r.beat(t)
	require.True(t, r.asks(t, "GET", orders), "it was told for 30 seconds")
}

func TestVerify_LocalIsOffWithoutAWatch(t *testing.T) {
	r := newRig(t, nil)
	r.asks(t, "GET", orders)
	r.server.hangUps <- struct{}{}
	<-r.server.opened // it opens another one
	require.True(t, r.asks(t, "GET", orders), "nothing is synced")
	r.server.send(&adminv1.WatchSessionsResponse{Frame: &adminv1.WatchSessionsResponse_Heartbeat{Heartbeat: timestamppb.New(r.server.now.Now())}})
	require.True(t, r.asks(t, "GET", orders), "a heartbeat alone says nothing")
	r.server.send(&adminv1.WatchSessionsResponse{Frame: &adminv1.WatchSessionsResponse_Synced{Synced: timestamppb.New(r.server.now.Now())}})
	r.beat(t)
	require.True(t, r.asks(t, "GET", orders), "what was known before is forgotten")
	require.False(t, r.asks(t, "GET", orders))
}

// The answer to a question may be older than a change that was told while it was under way.
func TestVerify_LocalKeepsNoAnswerThatAChangeOvertook(t *testing.T) {
	for name, change := range map[string]func(*rig){
		"of the Session": func(r *rig) { r.known.forget(session) },
		"of everything":  func(r *rig) { r.known.forgetAll() },
		"of the watch":   func(r *rig) { r.known.lose(); r.known.check(r.server.now.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.server.introspect = func() { change(r) }
			r.asks(t, "GET", orders)
			r.server.introspect = nil
			_, kept := r.known.standing(dpop.TokenHash(r.token), r.server.now.Now())
			require.False(t, kept)
			require.True(t, r.asks(t, "GET", orders))
			require.False(t, r.asks(t, "GET", orders))
		})
	}
}

func TestVerify_LocalRefusesAProofThatWasUsedBefore(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#22")
	r := newRig(t, nil)
	first := r.request(t, "GET", orders)
	require.True(t, r.verify(t, first).Allowed, "judged by the server")
	require.Equal(t, "invalid_dpop_proof", r.verify(t, first).Reason, "and again here")
	second := r.request(t, "GET", orders)
	require.True(t, r.verify(t, second).Allowed, "judged here")
	r.server.all()
	r.beat(t)
	d := r.verify(t, second)
	require.Equal(t, []any{false, "invalid_dpop_proof", 401}, []any{d.Allowed, d.Reason, d.Status}, "and again by the server, which doesn't know it")
	require.Equal(t, 2, r.server.count())
}

func TestVerify_LocalLeavesToTheServerWhatItCantRemember(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxProofs = 2 })
	require.True(t, r.asks(t, "GET", orders))
	require.False(t, r.asks(t, "GET", orders))
	require.True(t, r.asks(t, "GET", orders), "there is no room for a third")
	r.server.now.Advance(100 * time.Second)
	r.beat(t)
	require.True(t, r.asks(t, "GET", orders), "the third may still come again")
	r.server.now.Advance(100 * time.Second)
	r.beat(t)
	r.asks(t, "GET", orders)
	require.False(t, r.asks(t, "GET", orders))
}

func TestVerify_LocalCountsRequestsOfASession(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#46")
	r := newRig(t, nil)
	r.server.table.RequestsPerMinute = 2
	require.True(t, r.asks(t, "GET", orders))
	require.False(t, r.asks(t, "GET", orders))
	require.False(t, r.asks(t, "GET", orders))
	d := r.verify(t, r.request(t, "GET", orders))
	require.Equal(t, []any{429, "rate_limited"}, []any{d.Status, d.Reason})
	require.Equal(t, "30", d.Header.Get("Retry-After"))
}

func TestVerify_NoncesAreJudgedByTheServer(t *testing.T) {
	r := newRig(t, nil)
	r.server.table.NonceRequired = true
	require.True(t, r.asks(t, "GET", orders))
	require.True(t, r.asks(t, "GET", orders))
}

func TestVerify_AnUnknownTokenIsTheServersToJudge(t *testing.T) {
	r := newRig(t, nil)
	r.asks(t, "GET", orders)
	r.server.answer = &adminv1.VerifyRequestResponse{
		Status: 401, Reason: "invalid_token", Body: `{"error":"invalid_token"}`,
		Headers: []*adminv1.HeaderField{{Name: "Www-Authenticate", Value: `DPoP error="invalid_token"`}},
	}
	r.token = "st_unknown"
	d := r.verify(t, r.request(t, "GET", orders))
	require.Equal(t, []any{false, 401, "invalid_token", `{"error":"invalid_token"}`}, []any{d.Allowed, d.Status, d.Reason, string(d.Body)})
	require.Equal(t, `DPoP error="invalid_token"`, d.Header.Get("WWW-Authenticate"))
	r.server.err = status.Error(codes.Unavailable, "away")
	_, err := r.Verify(t.Context(), r.request(t, "GET", orders))
	require.Equal(t, codes.Unavailable, status.Code(err), "nobody knows: it isn't served")
}

func TestVerify_RemoteAsksForEachRequest(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Local = false })
	for range 2 {
		require.True(t, r.asks(t, http.MethodGet, orders))
	}
	q := r.server.asked[0]
	require.Equal(t, []string{company, "GET", baseURL + orders}, []string{q.GetParent(), q.GetMethod(), q.GetUrl()})
}

func TestNew_ChecksItsConfiguration(t *testing.T) {
	r := newRig(t, nil)
	right := r.cfg
	for name, change := range map[string]func(*Config){
		"company":    func(c *Config) { c.Company = "cmp_1" },
		"connection": func(c *Config) { c.Conn = nil },
		"http":       func(c *Config) { c.BaseURL = "http://api.example.com" },
		"no base":    func(c *Config) { c.BaseURL = "" },
		"a query":    func(c *Config) { c.BaseURL = "https://api.example.com?x=1" },
	} {
		cfg := right
		change(&cfg)
		_, err := New(t.Context(), cfg)
		require.Error(t, err, name)
	}
}

func TestDelay_IsWhatAFrameTookLongerThanOthers(t *testing.T) {
	var d delay
	start := time.Unix(1796203800, 0)
	ahead := start.Add(time.Hour) // the clocks need not agree
	require.Zero(t, d.of(start, ahead))
	require.Equal(t, 700*time.Millisecond, d.of(start.Add(time.Second), ahead.Add(1700*time.Millisecond)))
	require.Zero(t, d.of(start.Add(2*time.Second), ahead.Add(1900*time.Millisecond)))
	require.Equal(t, 100*time.Millisecond, d.of(start.Add(3*time.Second), ahead.Add(3*time.Second)))
}
