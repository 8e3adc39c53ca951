package gate

import "github.com/maypok86/otter/v2"

// rememberedKeys bounds how many callers are known to be no guessers.
const rememberedKeys = 10_000

// known remembers keys that were valid, by hash, so that their owners never wait for
// somebody who guesses from the same address. It opens nothing: every call looks the key up.
type known struct {
	cache *otter.Cache[string, struct{}]
}

func newKnown() *known {
	return &known{otter.Must(&otter.Options[string, struct{}]{MaximumSize: rememberedKeys})}
}

func (k *known) has(hash string) bool {
	_, ok := k.cache.GetIfPresent(hash)
	return ok
}

func (k *known) add(hash string) { k.cache.Set(hash, struct{}{}) }
