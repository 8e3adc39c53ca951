package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// paper is where a log is written: it may be away.
type paper struct {
	mu     sync.Mutex
	away   bool
	got    []string
	most   int
	poison string
}

func (p *paper) save(_ context.Context, batch []Logged) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "away")
	}
	for _, one := range batch {
		if one.ID == p.poison {
			return errors.New("no such company")
		}
	}
	p.most = max(p.most, len(batch))
	for _, one := range batch {
		p.got = append(p.got, one.ID)
	}
	return nil
}

func (p *paper) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.got...)
}

func (p *paper) setAway(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

func TestAttemptLog_WritesInBatchesAndInOrder(t *testing.T) {
	p := &paper{}
	l := newAttemptLog(p.save, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.run(ctx) }()
	for i := range 450 {
		l.add(Logged{ID: strconv.Itoa(i)})
	}
	require.Eventually(t, func() bool { return len(p.lines()) == 450 }, 10*time.Second, 5*time.Millisecond)
	l.add(Logged{ID: "last"})
	stop()
	<-done
	got := p.lines()
	require.Len(t, got, 451)
	require.Equal(t, "last", got[450], "what waits at the end is written")
	for i := range 450 {
		require.Equal(t, strconv.Itoa(i), got[i])
	}
	require.LessOrEqual(t, p.most, logBatch)
}

func TestAttemptLog_KeepsABoundedNumberWhileTheDatabaseIsAway(t *testing.T) {
	p := &paper{away: true}
	l := newAttemptLog(p.save, slog.New(slog.DiscardHandler))
	for i := range maxLogged + 7 {
		l.add(Logged{ID: strconv.Itoa(i)})
	}
	require.Error(t, l.flush(t.Context()))
	require.EqualValues(t, 7, l.dropped.Load())
	p.setAway(false)
	require.NoError(t, l.flush(t.Context()))
	require.Len(t, p.lines(), maxLogged)
	require.Equal(t, "0", p.lines()[0])
}

func TestCredentials_PrintAsNothing(t *testing.T) {
	c := Credentials{APIKey: "sk-secret", Headers: map[string]string{"X-A": "secret"}, ClientKey: "secret"}
	require.Equal(t, "[redacted] [redacted]", c.String()+" "+c.GoString())
}

// BenchmarkAttemptLog is what an attempt pays for being logged, with a full answer.
func BenchmarkAttemptLog(b *testing.B) {
	l := newAttemptLog(func(context.Context, []Logged) error { return nil }, slog.New(slog.DiscardHandler))
	header := http.Header{"Webhook-Id": {"dlv_1"}, "Webhook-Timestamp": {"1796068980"}, "Webhook-Signature": {"v1,K5oZ v1a,hnO3"}, "X-Team": {"blue"}}
	ready := &prepared{credentials: Credentials{Headers: map[string]string{"X-Team": "blue"}}}
	res := egress.Response{Status: 200, Body: bytes.Repeat([]byte("x"), maxEvidence)}
	e := Endpoint{ID: "bke_1", Kind: KindWebhook}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.add(logged(tenancy.Scope{}, e, try{delivery: "dlv_1"}, noon, Attempt{Outcome: Answered, Status: 200}, header, ready, res))
		if i%logBatch == 0 {
			_ = l.flush(b.Context())
		}
	}
}
