package connect_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
)

// fresh makes the ID token good at the time of the rig's clock.
func (r *rig) fresh() map[string]any {
	return map[string]any{"exp": r.clock.Now().Add(time.Minute).Unix()}
}

func TestKeys_AreReadOnceInAWhile(t *testing.T) {
	r := newRig(t)
	for range 3 {
		_, err := r.login(t, nil)
		require.NoError(t, err)
	}
	require.Equal(t, 1, r.idp.count("/keys"))
	r.clock.Advance(5 * time.Minute)
	_, err := r.login(t, r.fresh())
	require.NoError(t, err)
	require.Equal(t, 2, r.idp.count("/keys"))
}

func TestKeys_Rotation(t *testing.T) {
	r := newRig(t)
	_, err := r.login(t, nil)
	require.NoError(t, err)
	r.idp.rotate(t, "k2")
	_, err = r.login(t, nil)
	require.NoError(t, err, "at once, and though the keys were just read")
	require.Equal(t, 2, r.idp.count("/keys"))

	r.idp.rotate(t, "k3")
	_, err = r.login(t, nil)
	requireRefused(t, err, "") // not so soon again
	require.Equal(t, 2, r.idp.count("/keys"))
	r.clock.Advance(30 * time.Second)
	_, err = r.login(t, nil)
	require.NoError(t, err)
	require.Equal(t, 3, r.idp.count("/keys"))

	r.clock.Advance(30 * time.Second)
	r.idp.rotate(t, "k3")
	_, err = r.login(t, r.fresh())
	require.NoError(t, err, "another key under the same kid")
}

func TestKeys_OneTakenBackIsForgotten(t *testing.T) {
	r := newRig(t)
	_, err := r.login(t, nil)
	require.NoError(t, err)
	old := r.idp.signer
	r.idp.rotate(t, "k2")
	published := r.idp.jwks
	r.idp.signWith(old, "k1")
	r.idp.jwks = published
	r.clock.Advance(5 * time.Minute)
	_, err = r.login(t, r.fresh())
	requireRefused(t, err, "")
}

func TestKeys_AreUnavailable(t *testing.T) {
	for name, c := range map[string]struct {
		status            int
		contentType, body string
	}{
		"down": {503, "text/html", "canary"}, "redirect": {302, "", ""}, "no JSON": {200, "application/json", "canary"}, "no set": {200, "application/json", `{"canary":1}`},
		"a private key": {200, "application/json", `{"keys":[{"kty":"oct","k":"canary"}]}`}, "broken": {0, "", ""}, "no JSON type": {200, "text/plain", `{"keys":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.idp.fails("/keys", c.status, c.contentType, c.body)
			_, err := r.login(t, nil)
			requireUnavailable(t, err)
			clear(r.idp.fault)
			_, err = r.login(t, nil)
			require.NoError(t, err, "the next login tries again")
		})
	}
	r := newRig(t)
	r.idp.jwks = jose.PublicKeySet()
	_, err := r.login(t, nil)
	requireRefused(t, err, "")
}
