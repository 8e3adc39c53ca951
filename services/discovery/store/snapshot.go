package store

import (
	"context"
	"fmt"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/company"
	"github.com/poppyfield/poppyfield/ent/domain"
	"github.com/poppyfield/poppyfield/ent/pagedesign"
	"github.com/poppyfield/poppyfield/ent/predicate"
	"github.com/poppyfield/poppyfield/ent/signinconnection"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// Snapshot implements app.Store.
func (s *Store) Snapshot(ctx context.Context, scope tenancy.Scope) (out app.Snapshot, err error) {
	err = s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		got, err := s.snapshots(ctx, tx, company.ID(scope.CompanyID()))
		if err != nil {
			return err
		}
		if len(got) == 0 {
			return problem.New(problem.NotFound, problem.NotFoundReason, "", "not found")
		}
		out = got[0]
		return nil
	})
	return out, err
}

// SnapshotsOnHost implements app.Store.
func (s *Store) SnapshotsOnHost(ctx context.Context, hostname string) (out []app.Snapshot, err error) {
	if hostname == "" { // which is the browser host of whoever has none
		return nil, nil
	}
	err = s.db.SystemRead(ctx, db.ResolveHost, func(ctx context.Context, tx *ent.Tx) error {
		out, err = s.snapshots(ctx, tx, company.Or(company.IssuerHost(hostname), company.BrowserHost(hostname)), company.StateEQ(company.StateActive))
		return err
	})
	return out, err
}

// maxReads is how often a Company is read that changes meanwhile.
const maxReads = 5

// snapshots reads Companies with what belongs to them, each as of one version. SQLite
// shows a transaction one state of the database, PostgreSQL each of its statements
// another: there a Company whose version has moved on while its parts were read is read
// again. Every change of a part comes with a new version.
func (s *Store) snapshots(ctx context.Context, tx *ent.Tx, where ...predicate.Company) ([]app.Snapshot, error) {
	var out []app.Snapshot
	changed := where
	for range maxReads {
		rows, err := tx.Company.Query().Where(changed...).Order(company.ByCreatedAt(), company.ByID()).Limit(app.MaxOnHost).All(ctx)
		if err != nil || len(rows) == 0 {
			return out, err
		}
		ids := make([]string, len(rows))
		for i, row := range rows {
			ids[i] = row.ID
		}
		parts, err := readParts(ctx, tx, ids)
		if err != nil {
			return nil, err
		}
		versions, err := s.versions(ctx, tx, ids)
		if err != nil {
			return nil, err
		}
		var again []string
		for _, row := range rows {
			if versions != nil && versions[row.ID] != row.Version {
				again = append(again, row.ID)
				continue
			}
			one, err := parts.of(row)
			if err != nil {
				return nil, err
			}
			out = append(out, one)
		}
		if len(again) == 0 {
			return out, nil
		}
		changed = append(append([]predicate.Company{}, where...), company.IDIn(again...))
	}
	return nil, problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the company is being changed").WithRetryAfter(time.Second)
}

// versions returns the present versions, nil where they can't have changed.
func (s *Store) versions(ctx context.Context, tx *ent.Tx, ids []string) (map[string]int64, error) {
	if !s.db.Postgres() {
		return nil, nil
	}
	rows, err := tx.Company.Query().Where(company.IDIn(ids...)).Select(company.FieldID, company.FieldVersion).All(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]int64, len(rows))
	for _, row := range rows {
		out[row.ID] = row.Version
	}
	return out, nil
}

// parts are what belongs to Companies, by their ids.
type parts struct {
	connections map[string]*ent.SignInConnection
	designs     map[string]*ent.PageDesign
	domains     map[string][]string
}

func readParts(ctx context.Context, tx *ent.Tx, ids []string) (parts, error) {
	p := parts{map[string]*ent.SignInConnection{}, map[string]*ent.PageDesign{}, map[string][]string{}}
	connections, err := tx.SignInConnection.Query().Where(signinconnection.CompanyIDIn(ids...)).All(ctx)
	if err != nil {
		return p, err
	}
	for _, row := range connections {
		p.connections[row.CompanyID] = row
	}
	// The logo's bytes stay where they are: they are asked for by browsers alone.
	designs, err := tx.PageDesign.Query().Where(pagedesign.CompanyIDIn(ids...)).
		Select(pagedesign.FieldID, pagedesign.FieldCompanyID, pagedesign.FieldSettings, pagedesign.FieldLogoType,
			pagedesign.FieldCreatedAt, pagedesign.FieldUpdatedAt, pagedesign.FieldVersion).All(ctx)
	if err != nil {
		return p, err
	}
	for _, row := range designs {
		p.designs[row.CompanyID] = row
	}
	domains, err := tx.Domain.Query().Where(domain.CompanyIDIn(ids...), domain.StateEQ(domain.StateVerified)).Order(domain.ByDomain()).
		Select(domain.FieldID, domain.FieldCompanyID, domain.FieldDomain).All(ctx)
	if err != nil {
		return p, err
	}
	for _, row := range domains {
		p.domains[row.CompanyID] = append(p.domains[row.CompanyID], row.Domain)
	}
	return p, nil
}

// of joins a Company's row with its parts.
func (p parts) of(row *ent.Company) (out app.Snapshot, err error) {
	if out.Company, err = toCompany(row); err != nil {
		return app.Snapshot{}, err
	}
	if out.Connection, err = toConnection(p.connections[row.ID]); err != nil {
		return app.Snapshot{}, err
	}
	if out.Design, err = toDesign(p.designs[row.ID]); err != nil {
		return app.Snapshot{}, err
	}
	for _, name := range p.domains[row.ID] {
		d, err := discovery.ParseDomain(name)
		if err != nil {
			return app.Snapshot{}, fmt.Errorf("stored domain %s: %w", name, err)
		}
		out.Domains = append(out.Domains, d)
	}
	return out, nil
}
