// Package resource holds what every resource of the admin API shares: names, etags,
// update masks and page tokens (ADMIN conventions of docs/api.md).
package resource

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Page sizes.
const (
	DefaultPage = 50
	MaxPage     = 200
)

// tokenLife is how long a page token is good.
const tokenLife = 24 * time.Hour

// NotFound is the answer for what is missing and for what is another Company's.
func NotFound() error {
	return problem.New(problem.NotFound, problem.NotFoundReason, "", "not found")
}

// Child returns the ids in a name of the form companies/{c}/<kinds[0]>/{id}/… that
// lies in scope. A kind that ends the name without an id, such as "backend", gives no id.
func Child(scope tenancy.Scope, name string, kinds ...string) ([]string, error) {
	rest, ok := strings.CutPrefix(name, scope.Name())
	if !ok {
		return nil, NotFound()
	}
	var out []string
	for _, kind := range kinds {
		rest, ok = strings.CutPrefix(rest, "/"+kind)
		if !ok {
			return nil, NotFound()
		}
		if rest == "" {
			return out, nil
		}
		if rest[0] != '/' {
			return nil, NotFound()
		}
		id, after, more := strings.Cut(rest[1:], "/")
		if !isID(id) {
			return nil, NotFound()
		}
		out = append(out, id)
		rest = ""
		if more {
			rest = "/" + after
		}
	}
	if rest != "" {
		return nil, NotFound()
	}
	return out, nil
}

// isID reports whether s may be an id: nothing else reaches a query.
func isID(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}

// ChildID is Child for a single kind with an id.
func ChildID(scope tenancy.Scope, name, kind string) (string, error) {
	ids, err := Child(scope, name, kind)
	if err != nil {
		return "", err
	}
	if len(ids) != 1 {
		return "", NotFound()
	}
	return ids[0], nil
}

// ETag is the etag of a row's version.
func ETag(version int64) string { return `"` + strconv.FormatInt(version, 36) + `"` }

// CheckETag fails with ETAG_MISMATCH when the caller names another version than the present one; an empty etag always fits.
func CheckETag(etag string, version int64) error {
	if etag == "" || etag == ETag(version) {
		return nil
	}
	return problem.New(problem.Conflict, problem.EtagMismatch, "", "the resource has changed since it was read").WithExtra("etag", ETag(version))
}

// Mask returns which of the mutable fields an update is about: those of the mask, or
// without a mask those that present says are set. A path that isn't mutable is named in the error.
func Mask(mask *fieldmaskpb.FieldMask, mutable []string, present func(field string) bool) (func(field string) bool, error) {
	if len(mask.GetPaths()) == 0 {
		return present, nil
	}
	allowed := map[string]bool{}
	for _, f := range mutable {
		allowed[f] = true
	}
	want := map[string]bool{}
	for _, p := range mask.GetPaths() {
		if p == "*" {
			for _, f := range mutable {
				want[f] = true
			}
			continue
		}
		if !allowed[p] {
			return nil, Invalid("update_mask", p+" can't be changed; these can: "+strings.Join(mutable, ", "))
		}
		want[p] = true
	}
	return func(f string) bool { return want[f] }, nil
}

// Invalid is an INVALID_REQUEST that names one field.
func Invalid(field, detail string) *problem.Error {
	return problem.New(problem.Invalid, problem.InvalidRequest, "", "%s: %s", field, detail).WithField(field, detail)
}

// Size returns the page size that size asks for.
func Size(size int32) int {
	switch {
	case size <= 0:
		return DefaultPage
	case size > MaxPage:
		return MaxPage
	default:
		return int(size)
	}
}

type token struct {
	After []string `json:"a"`
	Bound string   `json:"b"`
	Made  int64    `json:"m"`
}

// Token returns the page token that continues after the row with the given key
// values, for the list that bound describes: its parent, filter and order.
func Token(now time.Time, after []string, bound ...string) string {
	raw, err := json.Marshal(token{After: after, Bound: bind(bound), Made: now.Unix()})
	if err != nil { // strings always marshal
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// After returns the key values of a page token, nil for the first page. keys is how
// many there have to be. A token of another list, or one older than a day, is refused.
func After(now time.Time, raw string, keys int, bound ...string) ([]string, error) {
	if raw == "" {
		return nil, nil
	}
	bad := Invalid("page_token", "not a page token of this list")
	b, err := base64.RawURLEncoding.DecodeString(raw)
	if err != nil {
		return nil, bad
	}
	var t token
	if json.Unmarshal(b, &t) != nil || len(t.After) != keys || t.Bound != bind(bound) {
		return nil, bad
	}
	// Tokens aren't signed: what they name is only looked for within the list, but it has to be text that a database takes.
	for _, key := range t.After {
		if strings.ContainsFunc(key, unicode.IsControl) {
			return nil, bad
		}
	}
	if age := now.Sub(time.Unix(t.Made, 0)); age > tokenLife || age < -time.Minute {
		return nil, Invalid("page_token", "expired: begin the list again")
	}
	return t.After, nil
}

func bind(parts []string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":" + p))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:9])
}
