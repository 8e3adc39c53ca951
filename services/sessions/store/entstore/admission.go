package entstore

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/admission"
	"github.com/poppyfield/poppyfield/ent/admissionrule"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// Admission implements store.Admissions.
func (s *Store) Admission(ctx context.Context, scope tenancy.Scope) (store.Admission, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.Admission, error) { return findAdmission(db.Last(ctx), tx) })
}

// SaveAdmission implements store.Admissions.
func (s *Store) SaveAdmission(ctx context.Context, scope tenancy.Scope, a store.Admission) (store.Admission, error) {
	saved, err := db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.Admission, error) {
		if a.Version == 0 { // the row comes with the first change
			row, err := tx.Admission.Create().SetID(ids.New(ids.Admission)).SetMode(admission.Mode(a.Mode)).SetRequireDpopNonce(a.RequireNonce).
				SetCreatedAt(a.UpdatedAt).SetUpdatedAt(a.UpdatedAt).SetVersion(1).Save(ctx)
			if err != nil {
				return store.Admission{}, err
			}
			return admissionOf(row), noteAll(ctx, tx, a.UpdatedAt)
		}
		n, err := tx.Admission.Update().Where(admission.Version(a.Version)).SetMode(admission.Mode(a.Mode)).
			SetRequireDpopNonce(a.RequireNonce).SetUpdatedAt(a.UpdatedAt).SetVersion(a.Version + 1).Save(ctx)
		if err != nil {
			return store.Admission{}, err
		}
		if n == 0 {
			return store.Admission{}, store.ErrStale
		}
		a.Version++
		return a, noteAll(ctx, tx, a.UpdatedAt)
	})
	if ent.IsConstraintError(err) { // two first changes at once
		return store.Admission{}, store.ErrStale
	}
	return saved, err
}

// Rules implements store.Admissions. Ids sort by creation.
func (s *Store) Rules(ctx context.Context, scope tenancy.Scope, after string, limit int) ([]store.Rule, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) ([]store.Rule, error) {
		rows, err := tx.AdmissionRule.Query().Where(admissionrule.IDGT(after)).Order(admissionrule.ByID()).Limit(limit).All(ctx)
		if err != nil {
			return nil, err
		}
		out := make([]store.Rule, 0, len(rows))
		for _, row := range rows {
			out = append(out, ruleOf(row))
		}
		return out, nil
	})
}

// PutRule implements store.Admissions.
func (s *Store) PutRule(ctx context.Context, scope tenancy.Scope, r store.Rule) (store.Rule, error) {
	return db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.Rule, error) {
		if err := putRule(ctx, tx, r); err != nil {
			return store.Rule{}, err
		}
		row, err := tx.AdmissionRule.Query().Where(admissionrule.ClientID(r.ClientID)).Only(ctx)
		if err != nil {
			return store.Rule{}, err
		}
		return ruleOf(row), noteAll(ctx, tx, r.CreatedAt)
	})
}

func putRule(ctx context.Context, tx *ent.Tx, r store.Rule) error {
	return tx.AdmissionRule.Create().SetID(r.ID).SetClientID(r.ClientID).SetEffect(admissionrule.Effect(r.Effect)).SetReason(r.Reason).
		SetNillableExpiresAt(optional(r.ExpiresAt)).SetCreatedAt(r.CreatedAt).
		OnConflictColumns(admissionrule.FieldCompanyID, admissionrule.FieldClientID).
		Update(func(u *ent.AdmissionRuleUpsert) { u.UpdateEffect().UpdateReason().UpdateExpiresAt() }).Exec(ctx)
}

// DeleteRule implements store.Admissions.
func (s *Store) DeleteRule(ctx context.Context, scope tenancy.Scope, id string, at time.Time) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		n, err := tx.AdmissionRule.Delete().Where(admissionrule.ID(id)).Exec(ctx)
		if err == nil && n == 0 {
			return store.ErrNotFound
		}
		if err != nil {
			return err
		}
		return noteAll(ctx, tx, at)
	})
}

func standing(ctx context.Context, tx *ent.Tx, clientID string) (store.Standing, error) {
	a, err := findAdmission(ctx, tx)
	if err != nil || clientID == "" {
		return store.Standing{Admission: a}, err
	}
	row, err := tx.AdmissionRule.Query().Where(admissionrule.ClientID(clientID)).Only(ctx)
	if ent.IsNotFound(err) {
		return store.Standing{Admission: a}, nil
	}
	if err != nil {
		return store.Standing{}, err
	}
	r := ruleOf(row)
	return store.Standing{Admission: a, Rule: &r}, nil
}

// noAdmission is that of a Company that never changed it.
var noAdmission = store.Admission{Mode: store.ModeOpen}

func findAdmission(ctx context.Context, tx *ent.Tx) (store.Admission, error) {
	row, err := tx.Admission.Query().Only(ctx)
	if ent.IsNotFound(err) {
		return noAdmission, nil
	}
	if err != nil {
		return store.Admission{}, err
	}
	return admissionOf(row), nil
}

func admissionOf(row *ent.Admission) store.Admission {
	return store.Admission{Mode: store.Mode(row.Mode), RequireNonce: row.RequireDpopNonce, UpdatedAt: row.UpdatedAt.UTC(), Version: row.Version}
}

func ruleOf(row *ent.AdmissionRule) store.Rule {
	return store.Rule{
		ID: row.ID, ClientID: row.ClientID, Effect: store.Effect(row.Effect), Reason: row.Reason,
		ExpiresAt: timeOf(row.ExpiresAt), CreatedAt: row.CreatedAt.UTC(),
	}
}
