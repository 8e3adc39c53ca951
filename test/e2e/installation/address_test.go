package installation_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/fixture"
	"github.com/poppyfield/poppyfield/test/whole"
)

func TestCO05_ForwardedForIsNoWayAroundTheLimit(t *testing.T) {
	const requests, limit = 1000, 600
	o := whole.StartOutside(t, outside)
	i := whole.Serve(t, o, whole.InstallationOptions{})
	c := whole.Onboard(t, i.API, o, whole.Spec{Slug: "noodles", Domain: "noodles.outside.test"})
	var mu sync.Mutex
	statuses := map[int]int{}
	var group sync.WaitGroup
	for worker := range 10 {
		group.Go(func() {
			for n := range requests / 10 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Issuer+"/oauth/token", strings.NewReader("a=b"))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
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
	require.GreaterOrEqual(t, statuses[http.StatusTooManyRequests], (requests-limit)/2, "%v", statuses)
	require.Equal(t, requests, statuses[http.StatusTooManyRequests]+statuses[http.StatusBadRequest]+statuses[http.StatusUnauthorized], "%v", statuses)
	t.Logf("%v", statuses)
}
