package entstore

import (
	"context"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/admission"
	"github.com/poppyfield/poppyfield/ent/admissionrule"
	"github.com/poppyfield/poppyfield/ent/grant"
	"github.com/poppyfield/poppyfield/ent/session"
	"github.com/poppyfield/poppyfield/ent/sessiontoken"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// Credential implements store.Tokens. Every request of every agent asks for it, so that
// what it needs of five tables comes by one question.
func (s *Store) Credential(ctx context.Context, scope tenancy.Scope, hash string) (store.Credential, error) {
	rows, err := db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) ([]credentialRow, error) {
		var rows []credentialRow
		err := tx.SessionToken.Query().Where(sessiontoken.ID(hash), withCredential).Select(
			sessiontoken.FieldID, sessiontoken.FieldSessionID, sessiontoken.FieldJkt, sessiontoken.FieldResource, sessiontoken.FieldScope,
			sessiontoken.FieldSignedIn, sessiontoken.FieldGrantID, sessiontoken.FieldCreatedAt, sessiontoken.FieldExpiresAt, sessiontoken.FieldRevokedAt,
		).Scan(db.Last(ctx), &rows)
		return rows, err
	})
	if err != nil {
		return store.Credential{}, err
	}
	if len(rows) == 0 || rows[0].SessionClientID == nil {
		var c store.Credential
		c.Admission, err = s.Admission(ctx, scope)
		return c, err
	}
	return rows[0].credential(), nil
}

// credentialRow is a token with its Session, the Grant it came from, and what admission
// is decided from; pointers are nil where there is no such row, or value.
type credentialRow struct {
	ID        string     `sql:"id"`
	SessionID string     `sql:"session_id"`
	JKT       string     `sql:"jkt"`
	Resource  string     `sql:"resource"`
	Scope     string     `sql:"scope"`
	SignedIn  bool       `sql:"signed_in"`
	GrantID   string     `sql:"grant_id"`
	CreatedAt time.Time  `sql:"created_at"`
	ExpiresAt time.Time  `sql:"expires_at"`
	RevokedAt *time.Time `sql:"revoked_at"`

	SessionClientID   *string    `sql:"s_client_id"`
	SessionAgentName  *string    `sql:"s_agent_name"`
	SessionUserID     *string    `sql:"s_user_id"`
	SessionAccount    *string    `sql:"s_account"`
	SessionGrantID    *string    `sql:"s_grant_id"`
	SessionExtensions *string    `sql:"s_extensions"`
	SessionCreatedAt  *time.Time `sql:"s_created_at"`
	SessionLastUsedAt *time.Time `sql:"s_last_used_at"`
	SessionEndedAt    *time.Time `sql:"s_ended_at"`

	GrantClientID     *string    `sql:"g_client_id"`
	GrantAgentName    *string    `sql:"g_agent_name"`
	GrantUserID       *string    `sql:"g_user_id"`
	GrantAccount      *string    `sql:"g_account"`
	GrantAccountLabel *string    `sql:"g_account_label"`
	GrantScope        *string    `sql:"g_scope"`
	GrantSignIn       *string    `sql:"g_sign_in"`
	GrantCreatedAt    *time.Time `sql:"g_created_at"`
	GrantExpiresAt    *time.Time `sql:"g_expires_at"`
	GrantLastUsedAt   *time.Time `sql:"g_last_used_at"`
	GrantEndedAt      *time.Time `sql:"g_ended_at"`
	GrantEndReason    *string    `sql:"g_end_reason"`

	AdmissionMode      *string    `sql:"a_mode"`
	AdmissionNonce     *bool      `sql:"a_require_dpop_nonce"`
	AdmissionUpdatedAt *time.Time `sql:"a_updated_at"`
	AdmissionVersion   *int64     `sql:"a_version"`

	RuleID        *string    `sql:"r_id"`
	RuleClientID  *string    `sql:"r_client_id"`
	RuleEffect    *string    `sql:"r_effect"`
	RuleReason    *string    `sql:"r_reason"`
	RuleExpiresAt *time.Time `sql:"r_expires_at"`
	RuleCreatedAt *time.Time `sql:"r_created_at"`
}

// withCredential joins what a token stands for. Each join names the Company, too, though
// the ids would do: what confines a query to it knows the first table only.
func withCredential(t *sql.Selector) {
	s, g := sql.Table(session.Table).As("s"), sql.Table(grant.Table).As("g")
	a, r := sql.Table(admission.Table).As("a"), sql.Table(admissionrule.Table).As("r")
	company := t.C(sessiontoken.FieldCompanyID)
	t.LeftJoin(s).OnP(sql.And(sql.ColumnsEQ(s.C(session.FieldCompanyID), company), sql.ColumnsEQ(s.C(session.FieldID), t.C(sessiontoken.FieldSessionID))))
	t.LeftJoin(g).OnP(sql.And(sql.ColumnsEQ(g.C(grant.FieldCompanyID), company), sql.ColumnsEQ(g.C(grant.FieldID), t.C(sessiontoken.FieldGrantID))))
	t.LeftJoin(a).OnP(sql.ColumnsEQ(a.C(admission.FieldCompanyID), company))
	t.LeftJoin(r).OnP(sql.And(sql.ColumnsEQ(r.C(admissionrule.FieldCompanyID), company), sql.ColumnsEQ(r.C(admissionrule.FieldClientID), s.C(session.FieldClientID))))
	for _, of := range []struct {
		table  *sql.SelectTable
		prefix string
		fields []string
	}{
		{s, "s_", []string{
			session.FieldClientID, session.FieldAgentName, session.FieldUserID, session.FieldAccount, session.FieldGrantID, session.FieldExtensions,
			session.FieldCreatedAt, session.FieldLastUsedAt, session.FieldEndedAt,
		}},
		{g, "g_", []string{
			grant.FieldClientID, grant.FieldAgentName, grant.FieldUserID, grant.FieldAccount, grant.FieldAccountLabel, grant.FieldScope, grant.FieldSignIn,
			grant.FieldCreatedAt, grant.FieldExpiresAt, grant.FieldLastUsedAt, grant.FieldEndedAt, grant.FieldEndReason,
		}},
		{a, "a_", []string{admission.FieldMode, admission.FieldRequireDpopNonce, admission.FieldUpdatedAt, admission.FieldVersion}},
		{r, "r_", []string{
			admissionrule.FieldID, admissionrule.FieldClientID, admissionrule.FieldEffect, admissionrule.FieldReason,
			admissionrule.FieldExpiresAt, admissionrule.FieldCreatedAt,
		}},
	} {
		for _, field := range of.fields {
			t.AppendSelectAs(of.table.C(field), of.prefix+field)
		}
	}
}

func (r credentialRow) credential() store.Credential {
	token := tokenOf(&ent.SessionToken{
		ID: r.ID, SessionID: r.SessionID, Jkt: r.JKT, Resource: r.Resource, Scope: r.Scope, SignedIn: r.SignedIn, GrantID: r.GrantID,
		CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt,
	})
	sn := sessionOf(&ent.Session{
		ID: r.SessionID, ClientID: *r.SessionClientID, AgentName: *r.SessionAgentName, UserID: *r.SessionUserID, Account: *r.SessionAccount,
		GrantID: *r.SessionGrantID, Extensions: *r.SessionExtensions, CreatedAt: *r.SessionCreatedAt, LastUsedAt: *r.SessionLastUsedAt, EndedAt: r.SessionEndedAt,
	})
	c := store.Credential{Token: &token, Session: &sn}
	if r.SignedIn && r.GrantClientID != nil {
		g := grantOf(&ent.Grant{
			ID: r.GrantID, ClientID: *r.GrantClientID, AgentName: *r.GrantAgentName, UserID: *r.GrantUserID, Account: *r.GrantAccount,
			AccountLabel: *r.GrantAccountLabel, Scope: *r.GrantScope, SignIn: grant.SignIn(*r.GrantSignIn), CreatedAt: *r.GrantCreatedAt,
			ExpiresAt: r.GrantExpiresAt, LastUsedAt: *r.GrantLastUsedAt, EndedAt: r.GrantEndedAt, EndReason: *r.GrantEndReason,
		})
		c.Grant = &g
	}
	c.Admission = noAdmission
	if r.AdmissionVersion != nil {
		c.Admission = admissionOf(&ent.Admission{
			Mode: admission.Mode(*r.AdmissionMode), RequireDpopNonce: *r.AdmissionNonce, UpdatedAt: *r.AdmissionUpdatedAt, Version: *r.AdmissionVersion,
		})
	}
	if r.RuleID != nil {
		rule := ruleOf(&ent.AdmissionRule{
			ID: *r.RuleID, ClientID: *r.RuleClientID, Effect: admissionrule.Effect(*r.RuleEffect), Reason: *r.RuleReason,
			ExpiresAt: r.RuleExpiresAt, CreatedAt: *r.RuleCreatedAt,
		})
		c.Rule = &rule
	}
	return c
}
