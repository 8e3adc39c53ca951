package installation_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/fixture"
	"github.com/poppyfield/poppyfield/test/whole"
)

func topologies() map[string]whole.InstallationOptions {
	return map[string]whole.InstallationOptions{
		"one process":         {},
		"six processes":       {Split: true},
		"six with mutual TLS": {Split: true, MutualTLS: true},
	}
}

func TestDP01_DP04_BehindAProxyThatTerminatesTLS(t *testing.T) {
	for name, options := range topologies() {
		t.Run("postgres/"+name, func(t *testing.T) {
			clausetest.Covers(t, "poppy-0.1/4.3#20")
			o := whole.StartOutside(t, outside)
			i := whole.Serve(t, o, options)
			t.Run("hosted issuer", func(t *testing.T) {
				c := whole.Onboard(t, i.API, o, whole.Spec{Slug: "noodles", Domain: "noodles.outside.test"})
				require.Equal(t, "https://noodles."+whole.HostedDomain, c.Issuer)
				converse(t, i, o, c)
				refuseInternal(t, i, o, c, "http://"+publicAddress(i, "auth")+"/oauth/token")
			})
			t.Run("issuer below a path that the proxy takes off", func(t *testing.T) {
				c := whole.Onboard(t, i.API, o, whole.Spec{
					Slug: "books", Issuer: "https://" + whole.GatewayHost + whole.GatewayPath, Domain: "books.outside.test",
				})
				converse(t, i, o, c)
				refuseInternal(t, i, o, c, "https://"+whole.GatewayHost+"/oauth/token")
			})
		})
	}
}

func publicAddress(i *whole.Installation, service string) string {
	if p := i.Processes[service]; p != nil {
		return p.Public
	}
	return i.Processes["all"].Public
}

func find(t *testing.T, i *whole.Installation, c *whole.Company) whole.Endpoints {
	t.Helper()
	e, err := whole.FindCompany(t.Context(), i.Client, "https://"+c.Domain)
	require.NoError(t, err)
	require.Equal(t, c.Issuer, e.Issuer)
	return e
}

// converse has a whole conversation: discovery, Session, two turns, close, revocation.
func converse(t *testing.T, i *whole.Installation, o *whole.Outside, c *whole.Company) {
	t.Helper()
	ctx := t.Context()
	c.Backend.Answer(whole.Echo)
	a := whole.NewAgent(t, o, i.Client, find(t, i, c))
	require.True(t, strings.HasPrefix(a.Endpoints.Token, c.Issuer+"/"), a.Endpoints.Token)
	require.NoError(t, a.StartSession(ctx))

	conversation, err := a.Open(ctx, fixture.RandomID(), "one")
	require.NoError(t, err)
	events, cursor, err := a.ReadUntil(ctx, conversation, "", whole.Idle)
	require.NoError(t, err)
	require.Equal(t, []string{"user: one", "company: you said: one"}, whole.Texts(events))

	require.NoError(t, a.Send(ctx, conversation, fixture.RandomID(), "two"))
	events, _, err = a.ReadUntil(ctx, conversation, cursor, whole.Idle)
	require.NoError(t, err)
	require.Equal(t, []string{"user: two", "company: you said: two"}, whole.Texts(events))

	answer, err := a.Call(ctx, http.MethodPost, a.Conversations+"/"+conversation+"/close", map[string]any{})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.Status, "%s", answer.Body)
	for _, w := range c.Backend.Received() {
		require.NoError(t, w.Verify(c.Secret))
	}

	form := a.ClientForm(t, a.Endpoints.Token, time.Now())
	form.Set("token", a.Token)
	answer, err = a.Form(ctx, a.Revocation, a.Revocation, form)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.Status, "%s", answer.Body)
	_, err = a.Read(ctx, conversation, "", 0)
	require.ErrorContains(t, err, "invalid_token")
}

// refuseInternal shows that a proof for where the request arrives behind the proxy is
// no proof for the endpoint, and that one for the endpoint is, all else the same.
func refuseInternal(t *testing.T, i *whole.Installation, o *whole.Outside, c *whole.Company, internal string) {
	t.Helper()
	clausetest.Refuses(t, "poppy-0.1/4.3#20")
	a := whole.NewAgent(t, o, i.Client, find(t, i, c))
	answer, err := a.Form(t.Context(), a.Endpoints.Token, internal, a.TokenForm(t, a.User, a.Endpoints.Token, time.Now()))
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, answer.Status)
	require.Contains(t, string(answer.Body), "invalid_dpop_proof")
	require.NoError(t, a.StartSession(t.Context()))
}
