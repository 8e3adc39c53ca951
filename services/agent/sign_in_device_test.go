package agent

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

func TestDevice_PollsAsTheCompanySays(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#2", "poppy-0.1/4.6#3", "poppy-0.1/4.6#4", "poppy-0.1/4.6#5", "poppy-0.1/4.6#7", "poppy-0.1/4.6#8", "poppy-0.1/4.6#12", "poppy-0.1/4.6#13")
	clausetest.Refuses(t, "poppy-0.1/4.6#12")
	c := newFakeCompany(t)
	c.offerSignIns(SignInDevice)
	c.signIns.device["interval"] = 4
	c.signIns.deviceAnswers = []string{"authorization_pending", "slow_down", "authorization_pending", "slow_down", "authorization_pending"}
	p := &fakePerson{}
	var out bytes.Buffer
	r, err := c.agent(t.TempDir(), NewJSONReporter(&out)).SignIn(t.Context(), shopDomain, SignInOptions{Browser: true}, p)
	require.NoError(t, err)
	require.Equal(t, SignInDevice, r.Type)
	s := time.Second
	require.Equal(t, []time.Duration{4 * s, 4 * s, 9 * s, 9 * s, 14 * s, 14 * s}, c.clock.waits, "slower, and it stays so")
	text := strings.Join(p.shown, "\n")
	for _, part := range []string{"WDJB-MJHT", shopIssuer + "/device\n", shopIssuer + "/device?user_code=WDJB-MJHT"} {
		require.Contains(t, text, part)
	}
	require.Empty(t, p.opened, "which device it is, is the User's choice")
	require.NotContains(t, text+out.String(), c.signIns.deviceCode)
	for _, r := range c.seen {
		require.NotContains(t, r.path+r.query, c.signIns.deviceCode)
	}
}

func TestDevice_StopsAtTheEnd(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#19")
	clausetest.Refuses(t, "poppy-0.1/4.6#19")
	for code, words := range map[string]string{"access_denied": "declined", "expired_token": "not used in time", "invalid_grant": "invalid_grant"} {
		t.Run(code, func(t *testing.T) {
			c := newFakeCompany(t)
			c.offerSignIns(SignInDevice)
			c.signIns.deviceAnswers = []string{"authorization_pending", code}
			dir := t.TempDir()
			_, err := c.agent(dir, Discard{}).SignIn(t.Context(), shopDomain, SignInOptions{}, &fakePerson{})
			require.ErrorContains(t, err, words)
			require.Equal(t, ExitRefused, ExitCode(err))
			require.Len(t, c.signIns.polls, 2)
			require.Nil(t, kept(t, dir))
		})
	}
}

func TestDevice_StopsWhenTheCodeIsOver(t *testing.T) {
	c := newFakeCompany(t)
	c.offerSignIns(SignInDevice)
	c.signIns.device["expires_in"] = 12
	delete(c.signIns.device, "interval")
	delete(c.signIns.device, "verification_uri_complete")
	c.signIns.deviceAnswers = []string{"authorization_pending", "authorization_pending", "authorization_pending"}
	_, err := c.agent(t.TempDir(), Discard{}).SignIn(t.Context(), shopDomain, SignInOptions{}, &fakePerson{})
	require.ErrorContains(t, err, "not used in time")
	require.Len(t, c.signIns.polls, 2, "every 5 s, where the Company says nothing")
}

func TestDevice_RefusesAnswersOfNoUse(t *testing.T) {
	now := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	good := `{"device_code":"d","user_code":"WDJB-MJHT","verification_uri":"https://a.example/d","verification_uri_complete":"https://a.example/d?c","expires_in":600,"interval":5}`
	d, err := parseDeviceAnswer([]byte(good), now)
	require.NoError(t, err)
	require.Equal(t, now.Add(10*time.Minute), d.expires)
	d, err = parseDeviceAnswer([]byte(strings.Replace(good, "https://a.example/d?c", "javascript:alert(1)", 1)), now)
	require.NoError(t, err)
	require.Empty(t, d.linkWhole)
	for name, change := range map[string][2]string{
		"no device_code": {`"d"`, `""`},
		"no user_code":   {`"WDJB-MJHT"`, `""`},
		"plain http":     {`"https://a.example/d"`, `"http://a.example/d"`},
		"no life":        {`600`, `0`},
		"a string":       {`600`, `"600"`},
		"repeated":       {`"interval":5`, `"expires_in":5`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseDeviceAnswer([]byte(strings.Replace(good, change[0], change[1], 1)), now)
			require.Error(t, err)
		})
	}
}

// stopper is a Reporter that breaks the command off once a step with title is over.
type stopper struct {
	title string
	stop  func()
}

func (s stopper) Report(step Step) {
	if step.Title == s.title {
		s.stop()
	}
}

func TestDevice_StopsWithTheCommand(t *testing.T) {
	c := newFakeCompany(t)
	c.offerSignIns(SignInDevice)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.agent(t.TempDir(), stopper{"Show the User the link and the code", cancel}).SignIn(ctx, shopDomain, SignInOptions{}, &fakePerson{})
	require.ErrorContains(t, err, "stopped; nothing was changed")
	require.Equal(t, ExitNoAnswer, ExitCode(err))
	require.Empty(t, c.signIns.polls)
}
