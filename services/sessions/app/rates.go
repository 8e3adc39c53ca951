package app

import (
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// Rates are limits a minute beside those that a Company sets for a Session and for the
// Session starts of an agent. Zero is the default, less than zero no limit.
type Rates struct {
	// RequestsPerUser is for the Sessions of a User through one agent together; 6,000.
	RequestsPerUser int
	// RequestsPerAgent is for an agent at a Company; 300,000.
	RequestsPerAgent int
	// RequestsPerCompany is for all agents at a Company; 600,000.
	RequestsPerCompany int
	// StartsPerCompany is for the Session starts of all agents at a Company; 60,000.
	StartsPerCompany int
}

func (r Rates) inForce() Rates {
	for _, one := range []struct {
		v        *int
		fallback int
	}{{&r.RequestsPerUser, 6_000}, {&r.RequestsPerAgent, 300_000}, {&r.RequestsPerCompany, 600_000}, {&r.StartsPerCompany, 60_000}} {
		if *one.v == 0 {
			*one.v = one.fallback
		}
	}
	return r
}

// takeRequest counts a request in a Session, against the narrowest limit first: who is
// over that uses nothing up for others.
func (a *App) takeRequest(company *directory.Company, s *store.Session, now time.Time) error {
	id := company.Scope.CompanyID()
	for _, one := range []struct {
		key, detail string
		perMinute   int
	}{
		{id + "\x00" + s.ID, "too many requests in this Session", company.RequestsPerMinute},
		{id + "\x00user\x00" + s.ClientID + "\x00" + s.UserID, "too many requests of this User", a.perUser(company)},
		{id + "\x00agent\x00" + s.ClientID, "too many requests of this agent", a.Rates.RequestsPerAgent},
		{id, "too many requests at this Company", a.Rates.RequestsPerCompany},
	} {
		if ok, wait := a.Requests.Allow(one.key, one.perMinute, now); !ok {
			return tooMany(RequestLimit, wait, one.detail)
		}
	}
	return nil
}

// perUser is never less than what the Company lets one Session do.
func (a *App) perUser(company *directory.Company) int {
	if a.Rates.RequestsPerUser < 0 || company.RequestsPerMinute <= 0 {
		return 0
	}
	return max(a.Rates.RequestsPerUser, company.RequestsPerMinute)
}
