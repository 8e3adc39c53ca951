package credentials

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/connect"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// Connect asks the Company. id is the webhook-id of the question, another one each time.
type Connect interface {
	Check(ctx context.Context, company *directory.Company, id string, subject connect.Subject, fields map[string]string) (connect.Verdict, error)
	CheckCode(ctx context.Context, company *directory.Company, id string, subject connect.Subject, state, code string) (connect.Verdict, error)
	// Fields are what the Company asks for.
	Fields(company *directory.Company) []discovery.MediatedField
}

const (
	// codeAttempts is how many tries a one-time code gets (poppy-0.1/4.7#19).
	codeAttempts = 5
	// codeLifetime is how long a code is good where the Company doesn't say, and
	// maxCodeLifetime how long at most.
	codeLifetime    = 10 * time.Minute
	maxCodeLifetime = time.Hour
)

// ErrCodeExpired says that the one-time code ran out before it came. The Company wasn't asked.
var ErrCodeExpired = errors.New("the one-time code has expired")

// Checker checks credentials and one-time codes. It is safe for concurrent use.
type Checker struct {
	Attempts store.Attempts
	SignIns  store.SignIns
	Connect  Connect
	Keys     *keys.Ring
	Now      clock.Clock
}

// Start checks the credentials of a sign-in, for a request from address (limit.Key).
// Too many attempts are RATE_LIMITED before anybody is asked; an error that is
// connect.ErrUnavailable says that the Company gave no answer. At CodeRequired the
// returned sign-in is s as it has to be kept until the code comes: at StageCode, and a
// Mediated Sign-In with the time at which the code expires. It is for the caller to
// store. At the other outcomes it is s unchanged.
func (c *Checker) Start(ctx context.Context, company *directory.Company, s store.SignIn, address string, fields map[string]string) (store.SignIn, connect.Verdict, error) {
	taken := c.countFor(company, s, address, fields)
	wait, err := c.Attempts.Take(ctx, company.Scope, c.Now(), taken.keys()...)
	if err != nil {
		return s, connect.Verdict{}, err
	}
	if wait > 0 {
		return s, connect.Verdict{}, problem.New(problem.RateLimited, problem.RateLimitedReason, AttemptsLimited, "too many sign-in attempts").WithRetryAfter(wait)
	}
	v, err := c.Connect.Check(ctx, company, ids.New(s.ID), subjectOf(s), fields)
	if err != nil {
		return s, connect.Verdict{}, err
	}
	switch v.Outcome {
	case connect.Complete:
		c.giveBack(ctx, company, taken)
	case connect.CodeRequired:
		s, err = c.awaitCode(company, s, v, taken)
	case connect.Failed:
	}
	return s, v, err
}

// Code checks a one-time code of the sign-in, which the caller knows to be the
// User's and not to have run out. Every call counts as one of five attempts, in
// whatever process; once they are used up, or the sign-in went on meanwhile, the
// outcome is Failed. CodeRequired means that the code is wrong and another try is
// left. At Complete the sign-in is still at StageCode and the caller's to move on by
// Save, which lets one of several right codes win; at Failed it is over. A code that
// came too late is ErrCodeExpired.
func (c *Checker) Code(ctx context.Context, company *directory.Company, signInID, code string) (store.SignIn, connect.Verdict, error) {
	failed := connect.Verdict{Outcome: connect.Failed}
	s, err := c.SignIns.TakeCodeAttempt(ctx, company.Scope, signInID, codeAttempts)
	if errors.Is(err, store.ErrStale) {
		return store.SignIn{}, failed, nil
	}
	if err != nil {
		return store.SignIn{}, connect.Verdict{}, err
	}
	p, err := c.open(company, s)
	if err != nil {
		return s, connect.Verdict{}, err
	}
	if !c.Now().Before(p.until) {
		return s, connect.Verdict{}, ErrCodeExpired
	}
	v, err := c.Connect.CheckCode(ctx, company, ids.New(s.ID), subjectOf(s), p.state, code)
	if err != nil {
		return s, connect.Verdict{}, err
	}
	switch {
	case v.Outcome == connect.Complete:
		c.giveBack(ctx, company, p.counted)
		return s, v, nil
	case v.Outcome == connect.CodeRequired && s.CodeAttempts < codeAttempts:
		s, err = c.again(ctx, company, s, v, p)
		return s, v, err
	}
	s, err = c.end(ctx, company, s)
	return s, failed, err
}

// awaitCode is s with a code on its way.
func (c *Checker) awaitCode(company *directory.Company, s store.SignIn, v connect.Verdict, taken attempts) (store.SignIn, error) {
	p, err := c.open(company, s)
	if err != nil {
		return s, err
	}
	lifetime := v.Lifetime
	if lifetime <= 0 {
		lifetime = codeLifetime
	}
	p.state, p.counted, p.until = v.State, taken, c.Now().Add(min(lifetime, maxCodeLifetime)).Truncate(time.Second)
	if s.Sealed, err = c.seal(company, s.ID, p); err != nil {
		return s, err
	}
	s.Stage, s.CodeSentTo = store.StageCode, v.SentTo
	if s.Kind == directory.Mediated { // the pages have a time of their own
		s.ExpiresAt = p.until
	}
	return s, nil
}

// again keeps what the Company said with its refusal of a code, such as that it sent
// another one. When the code expires was promised to the agent, and stays.
func (c *Checker) again(ctx context.Context, company *directory.Company, s store.SignIn, v connect.Verdict, p pending) (store.SignIn, error) {
	next, changed := s, false
	if v.SentTo != "" && v.SentTo != s.CodeSentTo {
		next.CodeSentTo, changed = v.SentTo, true
	}
	if v.State != "" && v.State != p.state {
		p.state, changed = v.State, true
		var err error
		if next.Sealed, err = c.seal(company, s.ID, p); err != nil {
			return s, err
		}
	}
	if !changed {
		return s, nil
	}
	saved, err := c.SignIns.Save(ctx, company.Scope, next)
	if errors.Is(err, store.ErrStale) { // a parallel try has written what it was told
		return s, nil
	}
	if err != nil {
		return s, err
	}
	return saved, nil
}

// end closes the sign-in, unless somebody else did or a parallel try succeeded.
func (c *Checker) end(ctx context.Context, company *directory.Company, s store.SignIn) (store.SignIn, error) {
	for {
		s.Stage, s.Sealed, s.UpstreamHash = store.StageDone, nil, ""
		saved, err := c.SignIns.Save(ctx, company.Scope, s)
		if !errors.Is(err, store.ErrStale) {
			return saved, err
		}
		if s, err = c.SignIns.Find(ctx, company.Scope, s.ID); err != nil || s.Stage != store.StageCode {
			return s, err
		}
	}
}

func subjectOf(s store.SignIn) connect.Subject {
	return connect.Subject{
		SignInID: s.ID, ClientID: s.ClientID, AgentName: s.AgentName, UserID: s.UserID, SessionID: s.SessionID,
		Scopes: strings.Fields(s.Scope), SignIn: string(s.Kind),
	}
}
