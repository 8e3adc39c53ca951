package credentials

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// sealedFor is the purpose under which a sign-in's own secrets are sealed.
const sealedFor = "sign-in"

// The members of a sign-in's sealed object that are this package's. The others are the
// caller's and stay as they are.
const (
	codeState = "code_state" // the Company's own
	counted   = "counted"    // what the attempt counted for
	codeUntil = "code_until" // when the code runs out
)

// pending is what a sign-in keeps until its one-time code comes.
type pending struct {
	all     map[string]json.RawMessage
	state   string
	until   time.Time
	counted attempts
}

func (c *Checker) open(company *directory.Company, s store.SignIn) (pending, error) {
	p := pending{all: map[string]json.RawMessage{}}
	if len(s.Sealed) == 0 {
		return p, nil
	}
	plain, err := c.Keys.Open(company.Scope.CompanyID(), sealedFor, s.ID, s.Sealed)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(plain, &p.all); err != nil {
		return p, fmt.Errorf("sign-in: %w", err)
	}
	for name, into := range map[string]any{codeState: &p.state, codeUntil: &p.until, counted: &p.counted} {
		raw, ok := p.all[name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return p, fmt.Errorf("sign-in: %w", err)
		}
	}
	return p, nil
}

func (c *Checker) seal(company *directory.Company, id string, p pending) ([]byte, error) {
	for name, value := range map[string]any{codeState: p.state, codeUntil: p.until, counted: string(p.counted)} {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("sign-in: %w", err)
		}
		p.all[name] = raw
	}
	plain, err := json.Marshal(p.all)
	if err != nil {
		return nil, fmt.Errorf("sign-in: %w", err)
	}
	return c.Keys.Seal(company.Scope.CompanyID(), sealedFor, id, plain)
}
