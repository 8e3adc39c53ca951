package signin

import (
	"encoding/json"
	"fmt"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/services/auth/connect"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// sealedFor is the purpose under which a sign-in's own secrets are sealed.
const sealedFor = "sign-in"

// waiting is what a sign-in at StageLogin keeps sealed until the Company's login is
// done. At StageCode package credentials keeps its own there.
type waiting struct {
	// Force has the User prove anew who they are.
	Force    bool              `json:"force,omitempty"`
	Upstream *connect.Upstream `json:"upstream,omitempty"`
	// Decided is the hash of a login_challenge that the Company has decided, Rejected that it said no.
	Decided  string `json:"decided,omitempty"`
	Rejected bool   `json:"rejected,omitempty"`
}

func (a *App) seal(company *directory.Company, s store.SignIn, w waiting) (store.SignIn, error) {
	s.Sealed = nil
	if w == (waiting{}) {
		return s, nil
	}
	plain, err := json.Marshal(w)
	if err != nil {
		return s, fmt.Errorf("sign-in: %w", err)
	}
	s.Sealed, err = a.Keys.Seal(company.Scope.CompanyID(), sealedFor, s.ID, plain)
	return s, err
}

func (a *App) open(companyID string, s store.SignIn) (waiting, error) {
	var w waiting
	if len(s.Sealed) == 0 {
		return w, nil
	}
	plain, err := a.Keys.Open(companyID, sealedFor, s.ID, s.Sealed)
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal(plain, &w); err != nil {
		return w, fmt.Errorf("sign-in: %w", err)
	}
	return w, nil
}
