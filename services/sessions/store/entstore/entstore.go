// Package entstore keeps Sessions in the database. It owns nothing but the
// translation: every statement runs in a unit of work of internal/platform/db,
// which confines it to the Company of the scope.
package entstore

import (
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// Store implements the interfaces of package store.
type Store struct {
	db     *db.DB
	events *outbox.Recorder
}

var (
	_ store.Tokens        = (*Store)(nil)
	_ store.Admissions    = (*Store)(nil)
	_ store.Sessions      = (*Store)(nil)
	_ store.Pruning       = (*Store)(nil)
	_ store.Grants        = (*Store)(nil)
	_ store.Codes         = (*Store)(nil)
	_ store.Devices       = (*Store)(nil)
	_ store.Connections   = (*Store)(nil)
	_ store.Browsers      = (*Store)(nil)
	_ store.SignInPruning = (*Store)(nil)
	_ store.Changes       = (*Store)(nil)
)

// New makes a Store on d, which tells events of what happens to Sessions; nil for nobody.
func New(d *db.DB, events *outbox.Recorder) *Store { return &Store{d, events} }

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
