package app

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Step is one thing that was tried of a connection.
type Step struct {
	ID     string
	OK     bool
	Detail string
}

// CheckConnection tries the connection as it is stored. The steps end with the first
// that failed; only egress itself failing is an error.
func (a *App) CheckConnection(ctx context.Context, scope tenancy.Scope) ([]Step, error) {
	s, err := a.store.Snapshot(ctx, scope)
	if err != nil {
		return nil, err
	}
	conn := s.Connection
	switch conn.Method {
	case OIDC:
		return a.tryProvider(ctx, conn.OIDC.Issuer)
	case LoginHandoff:
		return []Step{tryURL(conn.LoginURL, "browsers are sent to it with a login_challenge")}, nil
	case TestAccounts:
		accounts, err := a.TestAccounts(s.ID, conn)
		if err != nil {
			return nil, err
		}
		return []Step{{"accounts", true, fmt.Sprintf("there are %d test accounts", len(accounts))}}, nil
	case CheckByWebhook:
	case NoMethod:
		if conn.CredentialCheck.URL == "" {
			return []Step{{"method", false, "no method is set: Users can't sign in"}}, nil
		}
	}
	return []Step{tryURL(conn.CredentialCheck.URL, "it is tried with the first sign-in, since only real credentials show whether it answers")}, nil
}

func tryURL(raw, what string) Step {
	if err := checkURL(raw); err != nil {
		return Step{"url", false, fmt.Sprintf("%q: %s", raw, err)}
	}
	return Step{"url", true, fmt.Sprintf("%s is well-formed; %s", raw, what)}
}

// tryProvider reads the discovery document of issuer and the keys it points at.
func (a *App) tryProvider(ctx context.Context, issuer string) ([]Step, error) {
	at := metadataURL(issuer)
	raw, detail, err := a.fetch(ctx, at)
	if err != nil {
		return nil, err
	}
	if detail != "" {
		return []Step{{"metadata", false, at + ": " + detail}}, nil
	}
	m, err := parseProvider(raw)
	if err != nil {
		return []Step{{"metadata", false, at + " is no sound JSON object"}}, nil //nolint:nilerr // what the provider answers is something seen
	}
	if detail := m.checkIssuer(issuer); detail != "" {
		return []Step{{"metadata", false, detail}}, nil
	}
	steps := []Step{{"metadata", true, at + " is the metadata of " + issuer}}
	if detail := m.checkEndpoints(); detail != "" {
		return append(steps, Step{"endpoints", false, detail}), nil
	}
	steps = append(steps, Step{"endpoints", true, "Users sign in at " + clip(m.AuthorizationEndpoint)})
	raw, detail, err = a.fetch(ctx, m.JWKSURI)
	if err != nil {
		return nil, err
	}
	at = clip(m.JWKSURI)
	if detail != "" {
		return append(steps, Step{"keys", false, at + ": " + detail}), nil
	}
	n, detail := countKeys(raw)
	if detail != "" {
		return append(steps, Step{"keys", false, at + " is " + detail}), nil
	}
	steps = append(steps, Step{"keys", true, fmt.Sprintf("%s has %d keys for signatures", at, n)})
	return append(steps, m.pkce()), nil
}

// pkce says whether the provider checks what we send it anyway (RFC 7636): a provider
// that doesn't say so may do it nevertheless.
func (m providerMetadata) pkce() Step {
	if slices.Contains(m.PKCEMethods, "S256") {
		return Step{"pkce", true, "the provider takes S256"}
	}
	if m.PKCEMethods != nil {
		return Step{"pkce", true, fmt.Sprintf("the metadata has %q and not S256, which is sent nevertheless", clip(strings.Join(m.PKCEMethods, " ")))}
	}
	return Step{"pkce", true, "the metadata doesn't say whether the provider takes S256, which is sent in any case"}
}

// fetch gets a document in the time that one look has. detail says in a sentence why there is none.
func (a *App) fetch(ctx context.Context, url string) (body []byte, detail string, err error) {
	inner, cancel := context.WithTimeout(ctx, a.lookTime)
	defer cancel()
	p, err := a.egress.Get(inner, url)
	switch {
	case err != nil && ctx.Err() == nil && inner.Err() != nil:
		return nil, "no answer within " + a.lookTime.String(), nil
	case err != nil:
		return nil, "", err
	case p.Failure != "":
		return nil, p.Failure, nil
	case p.redirects():
		return nil, "answers " + clip(p.summary()) + ", and redirects are not followed", nil
	case p.Status != http.StatusOK:
		return nil, "answers " + p.summary() + " instead of 200", nil
	default:
		return p.Body, "", nil
	}
}
