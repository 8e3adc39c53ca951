package cimd

import (
	"errors"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
)

// The clauses of the key set behind jwks_uri.
const (
	PublicKeysOnly clause.ID = "poppy-0.1/4.1#d9" // private members refuse the client
	KeySetForm     clause.ID = "RFC7517/5"
)

// ParseKeySet reads the key set fetched from a document's JWKSURI. It fails with
// INVALID_CLIENT, for a set that publishes a private key with that as its detail: the
// agent's operator has to learn of it.
func ParseKeySet(body []byte) (jose.KeySet, error) {
	set, err := jose.ParseKeySet(body)
	switch {
	case err == nil:
		return set, nil
	case errors.Is(err, jose.ErrPrivateKey):
		return jose.KeySet{}, refuse(PublicKeysOnly, "the key set at jwks_uri publishes a private or symmetric key").WithCause(err)
	case errors.Is(err, jose.ErrTooLarge):
		return jose.KeySet{}, refuse(KeySetForm, "the key set at jwks_uri is larger than 64 KiB or has more than 100 keys").WithCause(err)
	}
	return jose.KeySet{}, refuse(KeySetForm, "the key set at jwks_uri is malformed").WithCause(err)
}
