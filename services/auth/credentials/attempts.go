package credentials

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// AttemptsLimited is the rule that attempts are rate-limited.
const AttemptsLimited clause.ID = "poppy-0.1/4.7#23"

// What may be tried how often. One address may be a whole agent's, with many Users.
const (
	window     = 15 * time.Minute
	perUser    = 10
	perAccount = 10
	perAddress = 30
)

// attempts is what one try counts for, as lines of a kind and a value.
type attempts string

func (a attempts) keys() []store.Key {
	var out []store.Key
	for line := range strings.Lines(string(a)) {
		k := store.Key{Window: window}
		k.Kind, k.Value, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch k.Kind {
		case "user":
			k.Limit = perUser
		case "account":
			k.Limit = perAccount
		case "address":
			k.Limit = perAddress
		}
		out = append(out, k)
	}
	return out
}

// countFor says what an attempt counts for: the User that the agent names, the account
// that is tried, and the address it comes from.
func (c *Checker) countFor(company *directory.Company, s store.SignIn, address string, fields map[string]string) attempts {
	out := "address " + address + "\n"
	if account := c.accountKey(company, fields); account != "" {
		out += "account " + account + "\n"
	}
	if s.UserID != "" {
		out += "user " + hashParts(nil, s.ClientID, s.UserID) + "\n"
	}
	return attempts(out)
}

// accountKey names the account that is tried by everything that isn't secret, however
// it is spelt: otherwise each spelling that the Company takes for the same would have
// its own limit. It is empty where every field is secret.
func (c *Checker) accountKey(company *directory.Company, fields map[string]string) string {
	var parts []string
	for _, f := range c.Connect.Fields(company) {
		if !f.Secret {
			parts = append(parts, f.Name, fold(fields[f.Name]))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	key := c.Keys.Derive(company.Scope.CompanyID(), "sign-in attempts")
	return hashParts(key[:], parts...)
}

// fold keeps letters and digits, in one case and without accents: what backends take
// for the same name shares a limit. That others share it too does no harm.
func fold(s string) string {
	kept := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsNumber(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, norm.NFKD.String(s))
	if kept == "" {
		return s
	}
	return kept
}

func hashParts(key []byte, parts ...string) string {
	mac := hmac.New(sha256.New, key)
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		mac.Write(size[:])
		mac.Write([]byte(p))
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// giveBack takes a successful attempt off the counters: Users who sign in often, and
// agents with many Users, are not to be locked out. One that can't be taken off locks
// nobody out for longer than its window.
func (c *Checker) giveBack(ctx context.Context, company *directory.Company, taken attempts) {
	_ = c.Attempts.Return(ctx, company.Scope, c.Now(), taken.keys()...)
}
