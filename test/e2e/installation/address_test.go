package installation_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/fixture"
	"github.com/poppyfield/poppyfield/test/whole"
)

func TestCO05_ForwardedForIsNoWayAroundTheLimit(t *testing.T) {
	const requests, limit = 400, 120 // wrong keys a minute and address
	i := whole.Serve(t, whole.StartOutside(t, outside), whole.InstallationOptions{})
	var mu sync.Mutex
	statuses := map[int]int{}
	var group sync.WaitGroup
	for worker := range 10 {
		group.Go(func() {
			for n := range requests / 10 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.API.Origin+"/v1/me", nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Authorization", "Bearer pfk_"+(fixture.RandomID() + fixture.RandomID())[:43])
				r.Header.Set("X-Forwarded-For", []string{
					fmt.Sprintf("9.%d.%d.1", worker, n), fixture.RandomID(), fmt.Sprintf("2001:db8:%x:%x::1", worker, n), "1.1.1.1, 127.0.0.1, ,;",
				}[n%4])
				response, err := i.Client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_ = response.Body.Close()
				if response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") == "" {
					t.Error("429 without Retry-After")
				}
				mu.Lock()
				statuses[response.StatusCode]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	require.InDelta(t, limit, statuses[http.StatusUnauthorized], 20, "%v", statuses) // one more each second
	require.Equal(t, requests, statuses[http.StatusTooManyRequests]+statuses[http.StatusUnauthorized], "%v", statuses)
}
