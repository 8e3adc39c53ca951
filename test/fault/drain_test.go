package fault_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/devserver"
	"github.com/poppyfield/poppyfield/test/fixture"
	"github.com/poppyfield/poppyfield/test/whole"
)

const (
	polls   = 200
	streams = 50
)

func TestLP02_StopAnswersEveryHeldReadAtOnce(t *testing.T) {
	o := whole.StartOutside(t, "")
	s := devserver.Start(t, devserver.Options{DevHosts: o.DevHosts(), TrustCA: []string{o.CAFile}, Flags: []string{"--demo=false"}})
	first, second := s.Client(t), s.Client(t)
	second.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	api := whole.API{Origin: s.APIOrigin, Key: s.OperatorAPIKey, Client: first}
	c := whole.Onboard(t, api, o, whole.Spec{Slug: "drain"})
	endpoints := whole.Endpoints{Issuer: c.Issuer, Token: c.Issuer + "/oauth/token", Conversations: c.Issuer + "/poppy/conversations"}
	ctx := t.Context()

	type held struct {
		page whole.Page
		err  error
		at   time.Time
	}
	results := make(chan held, polls)
	for n := range polls {
		client := first
		if n%2 == 1 {
			client = second
		}
		if n%20 > 1 { // ten agents of each client have ten reads each
			continue
		}
		a := whole.NewAgent(t, o, client, endpoints)
		require.NoError(t, a.StartSession(ctx))
		for range 5 { // a Session has few readers in one conversation
			id, err := a.Open(ctx, fixture.RandomID(), "hello")
			require.NoError(t, err)
			_, cursor, err := a.ReadUntil(ctx, id, "", whole.Idle)
			require.NoError(t, err)
			for range 2 {
				go func() {
					page, err := a.Read(ctx, id, cursor, 30)
					results <- held{page, err, time.Now()}
				}()
			}
		}
	}
	watches := watch(t, s, c, first, api)
	// A read that begins after all others are sent and is held for a second.
	a := whole.NewAgent(t, o, first, endpoints)
	require.NoError(t, a.StartSession(ctx))
	id, err := a.Open(ctx, fixture.RandomID(), "hello")
	require.NoError(t, err)
	_, cursor, err := a.ReadUntil(ctx, id, "", whole.Idle)
	require.NoError(t, err)
	page, err := a.Read(ctx, id, cursor, 1)
	require.NoError(t, err)
	require.Empty(t, page.Events)
	require.Empty(t, results, "nothing is answered before the stop")

	begin := time.Now()
	s.Signal(t, syscall.SIGTERM)
	var last time.Duration
	for range polls {
		r := <-results
		require.NoError(t, r.err)
		require.Empty(t, r.page.Events)
		require.NotEmpty(t, r.page.Cursor)
		last = max(last, r.at.Sub(begin))
	}
	require.Less(t, last, 3*time.Second)
	watches.Wait()
	require.NoError(t, s.Wait())
	took := time.Since(begin)
	require.Less(t, took, 10*time.Second)
	t.Logf("%d reads answered within %s, ended after %s", polls, last, took)
}

// watch opens streams of the admin API and fails unless each ends after a whole event.
func watch(t *testing.T, s *devserver.Server, c *whole.Company, client *http.Client, api whole.API) *sync.WaitGroup {
	t.Helper()
	var group sync.WaitGroup
	var open sync.WaitGroup
	key := ""
	for n := range streams {
		if n%20 == 0 { // as many as a key may have
			var made struct{ Key string }
			require.NoError(t, api.Call(t.Context(), http.MethodPost, c.Name+"/apiKeys", map[string]any{"display_name": "watch", "scopes": []string{"*"}}, &made))
			key = made.Key
		}
		r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, s.APIOrigin+"/v1/"+c.Name+":watch?topics=conversations", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+key)
		open.Add(1)
		group.Go(func() {
			response, err := client.Do(r)
			open.Done()
			if err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("watch: %v %v", response, err)
				return
			}
			defer response.Body.Close()
			text, err := io.ReadAll(bufio.NewReader(response.Body))
			if err != nil || !strings.HasSuffix(string(text), "\n\n") {
				t.Errorf("the stream ended amid an event: %q, %v", text[max(0, len(text)-200):], err)
			}
		})
	}
	open.Wait()
	return &group
}
