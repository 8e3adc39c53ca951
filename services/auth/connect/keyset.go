package connect

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
)

// reloadWait is how often an ID token that no key fits makes us read a provider's keys again.
const reloadWait = 30 * time.Second

// keySet is a provider's keys. It lives as long as the metadata that named it, so a key
// that the provider has taken back is forgotten with them.
type keySet struct {
	url  string
	http transport
	now  clock.Clock

	mu       sync.Mutex
	loaded   bool
	keys     jose.KeySet
	reloaded time.Time
}

// verify checks the signature of an ID token. One that fails is looked at again with
// the keys of now, at most once in reloadWait: the provider may have changed them.
func (k *keySet) verify(ctx context.Context, raw string) ([]byte, error) {
	jws, err := jose.ParseJWS(raw)
	if err != nil {
		return nil, refused("the ID token is not signed as it has to be: " + err.Error()) // texts of jose hold no input
	}
	k.mu.Lock()
	keys, loaded := k.keys, k.loaded
	k.mu.Unlock()
	if loaded {
		if _, err = keys.Verify(&jws); err == nil {
			return jws.Payload, nil
		}
		if !k.mayReload() {
			return nil, refused("the ID token's signature: " + err.Error())
		}
	}
	if keys, err = k.load(ctx); err != nil {
		return nil, err
	}
	if _, err = keys.Verify(&jws); err != nil {
		return nil, refused("the ID token's signature: " + err.Error())
	}
	return jws.Payload, nil
}

func (k *keySet) mayReload() bool {
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.reloaded.IsZero() && now.Sub(k.reloaded) < reloadWait {
		return false
	}
	k.reloaded = now
	return true
}

func (k *keySet) load(ctx context.Context) (jose.KeySet, error) {
	body, err := k.http.get(ctx, "keys", k.url, "")
	if err != nil {
		return jose.KeySet{}, err
	}
	keys, err := jose.ParseKeySet(body)
	if err != nil {
		return jose.KeySet{}, unavailable("keys", err.Error()) // texts of jose hold no input
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys, k.loaded = keys, true
	return keys, nil
}

// onceVerified is a keySet for one ID token: the verifier drops the kind of an error,
// so it is kept here, beside the payload whose signature held.
type onceVerified struct {
	keys    *keySet
	payload []byte
	err     error
}

var _ oidc.KeySet = (*onceVerified)(nil)

// VerifySignature implements oidc.KeySet.
func (o *onceVerified) VerifySignature(ctx context.Context, raw string) ([]byte, error) {
	o.payload, o.err = o.keys.verify(ctx, raw)
	if o.err != nil {
		return nil, errors.New("the signature does not hold")
	}
	return o.payload, nil
}
