package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
)

const (
	accountSuffix = ".account"
	lockSuffix    = ".account-lock"
	lockInterval  = 20 * time.Millisecond
)

// account is an Account Token (4.8) with what may be shown of it. It has a file of its
// own beside the relation: a Company may replace the token at any use, and another run
// that only saves where it is in a conversation must not put an old one back.
type account struct {
	Issuer  string    `json:"issuer"`
	Domain  string    `json:"domain"` // as the User named it
	Company string    `json:"company"`
	Token   string    `json:"token"`
	Scope   string    `json:"scope"`
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires,omitzero"` // zero: the Company set no end
}

// over reports whether the Account Token has reached its end (poppy-0.1/4.4#37).
func (a account) over(now time.Time) bool { return !a.Expires.IsZero() && !now.Before(a.Expires) }

// covers reports whether the Account Token has every scope of want.
func (a account) covers(want oauth.Scope) bool {
	return len(want) > 0 && oauth.Scope(strings.Fields(a.Scope)).Covers(want)
}

func accountFile(dir, user, issuer string) string {
	return strings.TrimSuffix(relationFile(dir, user, issuer), ".json") + accountSuffix
}

// loadAccount returns nil where there is none.
func loadAccount(file string) (*account, error) {
	raw, err := os.ReadFile(file) //nolint:gosec // below --dir, under a name that accountFile made
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no sign-in is a fact, not a failure
	}
	a := &account{}
	if err == nil {
		err = json.Unmarshal(raw, a)
	}
	if err == nil && a.Token == "" {
		err = errors.New("it holds no token")
	}
	if err != nil {
		return nil, fail(ExitUsage, "4.8", "reading the Account Token in %s", file).because(err)
	}
	return a, nil
}

// An accountSlot is where the Account Token for one issuer is, held by this process
// alone. The token is only ever used, replaced or given up by whoever holds it: of two
// runs at once, the second one sees what the Company gave the first.
type accountSlot struct {
	file string
	lock *os.File
	kept *account // nil: none
}

func openAccount(ctx context.Context, file string) (*accountSlot, error) {
	bad := func(err error) (*accountSlot, error) {
		return nil, fail(ExitUsage, "4.8", "the lock of the Account Token").because(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil { //nolint:gosec // as in loadAccount
		return bad(err)
	}
	lock, err := os.OpenFile(strings.TrimSuffix(file, accountSuffix)+lockSuffix, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // as in loadAccount
	if err != nil {
		return bad(err)
	}
	s := &accountSlot{file: file, lock: lock}
	for held := false; !held; {
		if held, err = tryLock(lock); err == nil && !held {
			err = SystemClock{}.Wait(ctx, lockInterval) // for another process, whatever the agent's clock is
		}
		if err != nil {
			s.close()
			return bad(err)
		}
	}
	if s.kept, err = loadAccount(file); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// put keeps a instead of what was there. Once it returns the old token is gone.
func (s *accountSlot) put(a account) error {
	raw, err := json.MarshalIndent(a, "", "  ")
	if err == nil {
		err = writePrivate(s.file, raw)
	}
	if err != nil {
		return fail(ExitUsage, "4.8", "keeping the Account Token").because(err)
	}
	s.kept = &a
	return nil
}

func (s *accountSlot) remove() error {
	if err := os.Remove(s.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(ExitUsage, "4.8", "removing the Account Token").because(err)
	}
	s.kept = nil
	return nil
}

// close lets the next process have the slot. The lock's file stays: removing it would
// let two processes hold locks of two files by one name.
func (s *accountSlot) close() { _ = s.lock.Close() }

// An AccountInfo is what may be shown of a sign-in: no token.
type AccountInfo struct {
	Company, Domain, Issuer string
	Scope                   string
	Since                   time.Time
	Expires                 time.Time // zero: the Company set no end
	Over                    bool      // it has reached its end
}

func (a account) info(now time.Time) AccountInfo {
	return AccountInfo{
		Company: a.Company, Domain: a.Domain, Issuer: a.Issuer, Scope: a.Scope,
		Since: a.Since, Expires: a.Expires, Over: a.over(now),
	}
}

// Accounts lists the User's sign-ins, without asking a Company: those at domain, or all
// where that is empty.
func (a *Agent) Accounts(domain string) ([]AccountInfo, error) {
	if domain != "" {
		t, err := parseTarget(domain)
		if err != nil {
			return nil, err
		}
		domain = t.authority
	}
	files, err := filepath.Glob(filepath.Join(a.dir, "users", a.user, "*"+accountSuffix))
	if err != nil {
		return nil, fmt.Errorf("listing the sign-ins: %w", err)
	}
	var list []AccountInfo
	for _, file := range files {
		kept, err := loadAccount(file)
		switch {
		case err != nil:
			return nil, err
		case kept == nil || domain != "" && kept.Domain != domain:
			continue
		}
		list = append(list, kept.info(a.clock.Now()))
	}
	slices.SortFunc(list, func(a, b AccountInfo) int { return strings.Compare(a.Domain, b.Domain) })
	return list, nil
}
