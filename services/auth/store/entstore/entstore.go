// Package entstore keeps sign-ins under way, counters of attempts and registered clients in the database.
// It owns nothing but the translation: every statement runs in a unit of work of
// internal/platform/db, which confines it to the Company of the scope.
package entstore

import (
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// Store implements the interfaces of package store.
type Store struct{ db *db.DB }

var (
	_ store.SignIns  = (*Store)(nil)
	_ store.Attempts = (*Store)(nil)
	_ store.Clients  = (*Store)(nil)
)

// New makes a Store on d.
func New(d *db.DB) *Store { return &Store{d} }
