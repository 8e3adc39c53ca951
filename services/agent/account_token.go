package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

func (v *visit) accountFile() string { return accountFile(v.agent.dir, v.agent.user, v.company.issuer) }

// account returns the Account Token to work with: nil where there is none, or none that
// is to be used.
func (v *visit) account() (*account, error) {
	if v.signedOut {
		return nil, nil //nolint:nilnil // as if there were none
	}
	return loadAccount(v.accountFile())
}

// refresh gets a signed-in token for the Session by Account Token, or a new signed-in
// Session where there is none that can be signed in to the account (4.8). False says
// that there is no Account Token, or none any more: the agent goes on signed out.
func (v *visit) refresh(ctx context.Context, scope string) (bool, error) {
	if kept, err := loadAccount(v.accountFile()); kept == nil || err != nil {
		return false, err
	}
	slot, err := openAccount(ctx, v.accountFile())
	if err != nil {
		return false, err
	}
	defer slot.close()
	switch {
	case slot.kept == nil:
		return false, nil // another run gave it up meanwhile
	case slot.kept.over(v.agent.clock.Now()):
		return false, v.forget(slot, "its time is over")
	}
	for {
		err := v.requestRefresh(ctx, slot, scope)
		switch {
		case refusedWith(err, "invalid_grant"): // poppy-0.1/4.8#19, poppy-0.1/4.9#20
			return false, v.forget(slot, "the Company takes it no more")
		case v.rel.Session != nil && (refusedWith(err, "invalid_session") || refusedWith(err, "account_mismatch")):
			v.anotherSession(err) // poppy-0.1/4.4#42, poppy-0.1/4.8#5
		default:
			return err == nil, err
		}
	}
}

func (v *visit) forget(slot *accountSlot, why string) error {
	v.agent.report(Step{
		Section: "4.8", Title: "Forget the Account Token and go on signed out", OK: true,
		Detail: why + "; sign in again with: " + v.company.signInCommand(slot.kept.Scope),
	})
	return slot.remove()
}

// anotherSession gives up a Session that is over, or that belongs to another account.
func (v *visit) anotherSession(why error) {
	detail := "the Session is over"
	if refusedWith(why, "account_mismatch") {
		detail = "this one is signed in to another account"
	}
	v.agent.report(Step{Section: "4.4", Title: "Go on in a new Session", OK: true, Detail: detail})
	v.rel.Session = nil
}

// requestRefresh makes the refresh grant for the Session there is, or for a new one.
func (v *visit) requestRefresh(ctx context.Context, slot *accountSlot, scope string) error {
	form := v.tokenForm(grantRefreshToken)
	form.Set("refresh_token", slot.kept.Token)
	setIf(form, "scope", scope)
	title, asked := "Start a signed-in Session", ""
	if s := v.rel.Session; s != nil {
		title, asked = "Renew the Session Token with the Account Token", s.ID
		form.Set("session_id", asked)
	}
	in, err := v.postForm(ctx, formRequest{
		section: "4.8", title: title, url: v.company.tokenEndpoint, form: form,
		secrets: []string{slot.kept.Token}, proof: true, expected: []string{"invalid_grant", "account_mismatch", "invalid_session"},
	})
	if err != nil {
		return err
	}
	if in.status != http.StatusOK {
		return fail(ExitRefused, "4.8", "no signed-in Session").because(parseRefusal(in, v.agent.clock.Now()))
	}
	s, got, err := parseSignedIn(in.body, asked, v.agent.clock.Now())
	// poppy-0.1/4.8#18: kept before anything else is done, for the one before may be
	// worth nothing now, whatever else is wrong with the answer.
	if kept := slot.kept.renewed(got, scope); err == nil || got.Token != "" {
		if err := slot.put(kept); err != nil {
			return err
		}
	}
	if err := v.reportAnswer("4.8", s, err); err != nil {
		return err
	}
	s.Narrowed = scope
	return v.takeSession(s, v.company.resource)
}

// renewed is the Account Token after a use: replaced where the Company gave a new one,
// with its scopes as the Company states them now.
func (a account) renewed(got account, narrowedTo string) account {
	if got.Token != "" {
		a.Token = got.Token
	}
	if !got.Expires.IsZero() {
		a.Expires = got.Expires
	}
	if narrowedTo == "" && got.Scope != "" {
		a.Scope = got.Scope
	}
	return a
}

// parseSignedIn checks an answer that signs the Session in (4.4, 4.8). The account has
// what the answer says of the Account Token: none where the one in use goes on.
func parseSignedIn(raw []byte, asked string, now time.Time) (session, account, error) {
	var in struct {
		Token     string  `json:"refresh_token"`
		ExpiresIn int64   `json:"refresh_token_expires_in"`
		Scope     *string `json:"scope"`
	}
	_ = json.Unmarshal(raw, &in) // a malformed answer fails below; a token it has replaced the old one all the same
	got := account{Token: in.Token, Since: now}
	if in.ExpiresIn > 0 {
		life := min(in.ExpiresIn, int64((100*365*24*time.Hour)/time.Second))
		got.Expires = now.Add(time.Duration(life) * time.Second)
	}
	s, err := parseTokenAnswer(raw, asked, now)
	switch {
	case err != nil:
	case in.Scope == nil || strings.TrimSpace(*in.Scope) == "": // poppy-0.1/4.4#33
		err = errors.New("scope is missing")
	case !s.SignedIn:
		err = errors.New("signed_in is false")
	default:
		got.Scope = *in.Scope
	}
	return s, got, err
}

// revoke ends an Account Token at the Company (RFC 7009).
func (v *visit) revoke(ctx context.Context, title, token string) error {
	in, err := v.postForm(ctx, formRequest{
		section: "4.9", title: title, url: v.company.revocationEndpoint,
		form:    url.Values{"token": {token}, "token_type_hint": {"refresh_token"}},
		secrets: []string{token},
	})
	if err != nil {
		return err
	}
	if in.status != http.StatusOK {
		return fail(ExitRefused, "4.9", "the Account Token was not revoked").because(parseRefusal(in, v.agent.clock.Now()))
	}
	return nil
}

// Refresh renews the Session Token at a Company with the Account Token; a scope
// narrows the Session to it, and none gives it all that the Account Token has.
func (a *Agent) Refresh(ctx context.Context, domain, scope string) (SessionInfo, error) {
	want, err := parseScopeFlag(scope)
	if err != nil {
		return SessionInfo{}, err
	}
	v, err := a.visitAccount(ctx, domain)
	if err != nil {
		return SessionInfo{}, err
	}
	done, err := v.refresh(ctx, want.String())
	switch {
	case err != nil:
		return SessionInfo{}, err
	case !done:
		return SessionInfo{}, fail(ExitRefused, "4.8", "the sign-in at %s is over; run: %s", v.company.name, v.company.signInCommand(scope))
	}
	return v.sessionInfo(), nil
}

// SignOut revokes the Account Token and forgets it. The Session goes on signed out.
func (a *Agent) SignOut(ctx context.Context, domain string) (SessionInfo, error) {
	v, err := a.visitAccount(ctx, domain)
	if err != nil {
		return SessionInfo{}, err
	}
	if err := v.giveUpAccount(ctx); err != nil {
		return SessionInfo{}, err
	}
	// The token at hand says signed in and is none any more: poppy-0.1/4.9#8 gets one that tells the truth.
	if err := v.renewSignedOut(ctx); err != nil {
		return SessionInfo{}, err
	}
	return v.sessionInfo(), nil
}

func (v *visit) giveUpAccount(ctx context.Context) error {
	slot, err := openAccount(ctx, v.accountFile())
	if err != nil {
		return err
	}
	defer slot.close()
	if slot.kept == nil {
		return nil
	}
	// Kept until the Company has answered: a token that is only forgotten would still work.
	if err := v.revoke(ctx, "Revoke the Account Token", slot.kept.Token); err != nil {
		return err
	}
	return slot.remove()
}

// visitAccount opens a Company at which the User is signed in, without a request to it
// beyond discovery.
func (a *Agent) visitAccount(ctx context.Context, domain string) (*visit, error) {
	c, err := a.Discover(ctx, domain)
	if err != nil {
		return nil, err
	}
	v, err := a.open(c, SessionOptions{})
	if err != nil {
		return nil, err
	}
	kept, err := v.account()
	switch {
	case err != nil:
		return nil, err
	case kept == nil:
		return nil, fail(ExitUsage, "4.8", "you are not signed in at %s; run: %s", c.name, c.signInCommand(""))
	}
	return v, nil
}

func formatEnd(at time.Time) string {
	if at.IsZero() {
		return "no end set"
	}
	return "until " + at.Format(time.RFC3339)
}
