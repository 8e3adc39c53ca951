package app

import (
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// The clauses of admission.
const (
	Registered clause.ID = "poppy-0.1/4.1#18"
	Listed     clause.ID = "poppy-0.1/4.1#19"
)

// A verdict says whether an agent is let in; the zero verdict lets in.
type verdict struct {
	clause clause.ID
	detail string
}

func (v verdict) refused() bool { return v.detail != "" }

// admit judges an agent. An expired rule counts as none; a rule that blocks wins in
// every mode (poppy-0.1/4.1#20).
func admit(s store.Standing, now time.Time) verdict {
	var effect store.Effect
	if r := s.Rule; r != nil && (r.ExpiresAt.IsZero() || now.Before(r.ExpiresAt)) {
		effect = r.Effect
	}
	if effect == store.EffectBlock {
		return verdict{Listed, "this Company has blocked the client"}
	}
	switch s.Admission.Mode {
	case store.ModeOpen, store.ModeBlocklist:
		return verdict{}
	case store.ModeAllowlist:
		if effect == store.EffectAllow {
			return verdict{}
		}
		return verdict{Listed, "this Company admits only clients on its list"}
	case store.ModeRegistration:
		if effect == store.EffectRegister {
			return verdict{}
		}
		return verdict{Registered, "this Company admits only registered clients"}
	}
	return verdict{Listed, "this Company does not admit the client"}
}
