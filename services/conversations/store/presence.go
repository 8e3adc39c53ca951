package store

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	entpresence "github.com/poppyfield/poppyfield/ent/presence"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
)

// Presence is a person who is, or was, there.
type Presence struct {
	Person      string
	DisplayName string
	Until       time.Time // when they count as gone
}

// SavePresence writes that a person is there until a time.
func (t Tx) SavePresence(ctx context.Context, p Presence, now time.Time) error {
	n, err := t.tx.Presence.Update().Where(entpresence.Person(p.Person)).
		SetDisplayName(p.DisplayName).SetUntil(p.Until).SetUpdatedAt(now).AddVersion(1).Save(ctx)
	if err != nil || n > 0 {
		return err
	}
	return t.tx.Presence.Create().SetID(ids.New(ids.Presence)).SetPerson(p.Person).SetDisplayName(p.DisplayName).SetUntil(p.Until).
		SetCreatedAt(now).SetUpdatedAt(now).Exec(ctx)
}

// Presences returns who is there at a time, by name.
func (t Tx) Presences(ctx context.Context, now time.Time) ([]Presence, error) {
	rows, err := t.tx.Presence.Query().Where(entpresence.UntilGT(now)).Order(entpresence.ByPerson()).All(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Presence, 0, len(rows))
	for _, row := range rows {
		out = append(out, Presence{Person: row.Person, DisplayName: row.DisplayName, Until: row.Until.UTC()})
	}
	return out, nil
}

// LockPresence returns what is known of a person, and holds it until the end of the
// transaction; false for somebody who never said that they are there.
func (t Tx) LockPresence(ctx context.Context, person string) (Presence, bool, error) {
	q := t.tx.Presence.Query().Where(entpresence.Person(person))
	if t.postgres {
		q.ForUpdate()
	}
	row, err := q.Only(ctx)
	if ent.IsNotFound(err) {
		return Presence{}, false, nil
	}
	if err != nil {
		return Presence{}, false, err
	}
	return Presence{Person: row.Person, DisplayName: row.DisplayName, Until: row.Until.UTC()}, true, nil
}
