package app

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/doorbell"
	"github.com/poppyfield/poppyfield/services/conversations/meter"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// Dispatcher delivers what was accepted.
type Dispatcher interface {
	// Take lends a slot to deliver to a Company's backend at once; false when none is free.
	Take(scope tenancy.Scope) (Slot, bool)
}

// Slot is the right to one delivery at a time. It is used up by exactly one of Run and Free.
type Slot interface {
	// Lease is what a delivery has to be stored with to be this slot's.
	Lease(now time.Time) store.Lease
	// Run delivers a claim that was stored with the lease. It returns at once.
	Run(c store.Claim)
	// Free gives the slot back unused.
	Free()
}

// Companies looks up what background jobs and the Company's own calls need to know of it.
type Companies interface {
	Get(ctx context.Context, scope tenancy.Scope) (*directory.Company, error)
}

// App is the conversations of an installation.
type App struct {
	store     *store.Store
	bells     *doorbell.Bells
	dispatch  Dispatcher
	companies Companies
	now       clock.Clock
	meter     *meter.Meter
	usage     *usage.Meter
	together  *together
}

// New makes the app. u may be nil: then nothing is counted for the Companies.
func New(s *store.Store, bells *doorbell.Bells, d Dispatcher, companies Companies, now clock.Clock, m *meter.Meter, u *usage.Meter) *App {
	return &App{store: s, bells: bells, dispatch: d, companies: companies, now: now, meter: m, usage: u, together: newTogether(s)}
}

// Caller is the Session that a request acts in, as the sessions service judged it.
type Caller struct {
	Scope     tenancy.Scope
	SessionID string
	ClientID  string
	AgentName string
	UserID    string
	SignedIn  bool
	Account   string
	Scopes    []string
	// Expires is when the token does at the latest; zero for never.
	Expires time.Time
}

// owner is the caller as the rules of ownership know them (Poppy 7.2).
func (c Caller) owner() conversation.Owner {
	return conversation.Owner{ClientID: c.ClientID, UserID: c.UserID, AccountID: c.Account}
}

// key is the hash within which message ids are unique: the User's at one Personal
// Agent. The lengths keep two pairs of client and User from having the same text.
func (c Caller) key() string {
	h := sha256.New()
	for _, s := range []string{c.ClientID, c.UserID} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
