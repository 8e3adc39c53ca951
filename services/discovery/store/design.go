package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// designSettings are what of a design isn't its logo.
type designSettings struct {
	AccentColor string                       `json:"accent_color,omitempty"`
	LogoVersion string                       `json:"logo_version,omitempty"`
	Welcome     map[string]string            `json:"welcome,omitempty"`
	SupportURL  string                       `json:"support_url,omitempty"`
	PrivacyURL  string                       `json:"privacy_url,omitempty"`
	TermsURL    string                       `json:"terms_url,omitempty"`
	ScopeTexts  map[string]map[string]string `json:"scope_texts,omitempty"`
}

// Design implements app.Store.
func (s *Store) Design(ctx context.Context, scope tenancy.Scope) (out app.Design, err error) {
	err = s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		out, err = designOf(ctx, tx)
		return err
	})
	return out, err
}

// UpdateDesign implements app.Store.
func (s *Store) UpdateDesign(ctx context.Context, scope tenancy.Scope, change func(*app.Design) error) (out app.Design, err error) {
	err = s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		if _, _, err := s.lockCompany(ctx, tx, scope); err != nil {
			return err
		}
		d, err := designOf(ctx, tx)
		if err != nil {
			return err
		}
		if err := change(&d); err != nil {
			return err
		}
		settings, err := json.Marshal(designSettings{
			AccentColor: d.AccentColor, LogoVersion: d.Logo.Version, Welcome: d.Welcome,
			SupportURL: d.SupportURL, PrivacyURL: d.PrivacyURL, TermsURL: d.TermsURL, ScopeTexts: d.ScopeTexts,
		})
		if err != nil {
			return err
		}
		now := s.now()
		var row *ent.PageDesign
		if d.ID == "" {
			row, err = tx.PageDesign.Create().SetID(ids.New(ids.Design)).SetCompanyID(scope.CompanyID()).SetSettings(settings).
				SetLogo(d.Logo.Bytes).SetLogoType(d.Logo.Type).SetCreatedAt(now).SetUpdatedAt(now).Save(ctx)
		} else {
			row, err = tx.PageDesign.UpdateOneID(d.ID).SetSettings(settings).
				SetLogo(d.Logo.Bytes).SetLogoType(d.Logo.Type).SetUpdatedAt(now).AddVersion(1).Save(ctx)
		}
		if err != nil {
			return err
		}
		if err := bump(ctx, tx, scope); err != nil {
			return err
		}
		out, err = toDesign(row)
		return err
	})
	return out, notFound(err)
}

// designOf loads the design of the unit's Company; the zero one where there is none yet.
func designOf(ctx context.Context, tx *ent.Tx) (app.Design, error) {
	row, err := tx.PageDesign.Query().Only(ctx)
	if err != nil && !ent.IsNotFound(err) {
		return app.Design{}, err
	}
	return toDesign(row)
}

func toDesign(row *ent.PageDesign) (app.Design, error) {
	if row == nil {
		return app.Design{}, nil
	}
	var d designSettings
	if err := json.Unmarshal(row.Settings, &d); err != nil {
		return app.Design{}, fmt.Errorf("stored design %s: %w", row.ID, err)
	}
	return app.Design{
		ID: row.ID, AccentColor: d.AccentColor, Logo: app.Logo{Type: row.LogoType, Version: d.LogoVersion, Bytes: row.Logo}, Welcome: d.Welcome,
		SupportURL: d.SupportURL, PrivacyURL: d.PrivacyURL, TermsURL: d.TermsURL, ScopeTexts: d.ScopeTexts,
		Version: row.Version, CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC(),
	}, nil
}
