package webhook

import (
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// MaxKeySet caps a published list of keys, in bytes.
const MaxKeySet = 64 << 10

// PublishedKey is an entry of webhook-keys.json.
type PublishedKey struct {
	ID  string
	Key PublicKey
}

type wireKeySet struct {
	Keys []wireKey `json:"keys"`
}

type wireKey struct {
	ID        string `json:"id"`
	PublicKey string `json:"public_key"`
}

// BuildKeySet makes webhook-keys.json, with the keys in the order given.
func BuildKeySet(keys []PublishedKey) ([]byte, error) {
	w := wireKeySet{Keys: make([]wireKey, 0, len(keys))}
	for _, k := range keys {
		if !k.Key.usable() {
			return nil, badKey("an empty key can't be published")
		}
		w.Keys = append(w.Keys, wireKey{ID: k.ID, PublicKey: k.Key.String()})
	}
	return encode(w)
}

// ParseKeySet reads webhook-keys.json. Entries in a form that isn't known are
// skipped, so that other kinds of keys can be added.
func ParseKeySet(raw []byte) ([]PublishedKey, error) {
	if len(raw) > MaxKeySet {
		return nil, problem.New(problem.TooLarge, InvalidKey, clauseKeys, "the key list has more than %d bytes", MaxKeySet)
	}
	obj, err := jsonx.ParseObject(raw)
	if err != nil {
		return nil, problem.New(problem.Invalid, InvalidKey, clauseKeys, "the key list is no sound JSON object").WithCause(err)
	}
	list, ok := membersOf(obj)["keys"].Array()
	if !ok {
		return nil, badKey("the key list has no keys")
	}
	out := []PublishedKey{}
	for item, ok := list.Next(); ok; item, ok = list.Next() {
		entry, isObject := item.Object()
		if !isObject {
			continue
		}
		m := membersOf(entry)
		key, err := ParsePublicKey(m["public_key"].Text())
		if err != nil {
			continue
		}
		out = append(out, PublishedKey{ID: m["id"].Text(), Key: key})
	}
	return out, nil
}

type members map[string]jsonx.Value

func membersOf(obj jsonx.Object) members {
	m := members{}
	for name, value, ok := obj.Next(); ok; name, value, ok = obj.Next() {
		m[string(name)] = value
	}
	return m
}
