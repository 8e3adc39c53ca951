package webhook

import (
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const (
	// InvalidSignature is a webhook that no accepted key signed, or not in time.
	InvalidSignature problem.Reason = "INVALID_SIGNATURE"
	// InvalidAnswer is a backend's answer that breaks the contract.
	InvalidAnswer problem.Reason = "INVALID_ANSWER"
	// InvalidKey is a secret or key that is not in a known serialisation.
	InvalidKey problem.Reason = "INVALID_KEY"
)

const (
	clauseSignature clause.ID = "StandardWebhooks-1.0.0/signature-scheme"
	clauseKeys      clause.ID = "StandardWebhooks-1.0.0/secret-serialization"
	clauseHeaders   clause.ID = "StandardWebhooks-1.0.0/headers"
)
