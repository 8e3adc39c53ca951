package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
)

const handledKept = 2000 // event IDs remembered per conversation (7.5)

// relation is what the agent keeps of one User at one Company, which is one issuer
// (3.2): all of its domains share it.
type relation struct {
	file   string
	signer *jose.Signer

	Issuer       string            `json:"issuer"`
	UserID       string            `json:"user_id"`
	DPoPKey      string            `json:"dpop_key"`
	Session      *session          `json:"session,omitempty"`
	Conversation *conversation     `json:"conversation,omitempty"`
	Direct       *conversation     `json:"direct,omitempty"` // the open Direct Conversation below Conversation (7.10)
	Nonces       map[string]string `json:"nonces,omitempty"`
}

// session is the newest Session Token; older ones are never used again (4.3).
type session struct {
	ID       string    `json:"id"`
	Token    string    `json:"token"`
	Expires  time.Time `json:"expires"`
	Scope    string    `json:"scope"`
	SignedIn bool      `json:"signed_in"`
	Resource string    `json:"resource,omitempty"`
	Narrowed string    `json:"narrowed,omitempty"` // the scope it was narrowed to, which renewals keep (4.8)
}

type conversation struct {
	ID      string   `json:"id"`
	Cursor  string   `json:"cursor,omitempty"`
	Handled []string `json:"handled,omitempty"`
}

// conversation is where the User is: in the Direct Conversation while there is one.
func (r *relation) conversation() *conversation {
	if r.Direct != nil {
		return r.Direct
	}
	return r.Conversation
}

func (c *conversation) seen(id string) bool { return slices.Contains(c.Handled, id) }

func (c *conversation) remember(id string) {
	c.Handled = append(c.Handled, id)
	if over := len(c.Handled) - handledKept; over > 0 {
		c.Handled = slices.Delete(c.Handled, 0, over)
	}
}

// checkUser accepts names that are file names everywhere. The name stays on this
// machine: Companies only ever see the random User ID.
func checkUser(name string) error {
	if !regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`).MatchString(name) {
		return fail(ExitUsage, "", "--user %q: lower-case letters, digits, - and _ only, at most 32", name)
	}
	return nil
}

func relationFile(dir, user, issuer string) string {
	sum := sha256.Sum256([]byte(issuer))
	return filepath.Join(dir, "users", user, hex.EncodeToString(sum[:12])+".json")
}

// openRelation loads the User's relation to the Company, or begins it: a User ID of
// 144 random bits that nothing personal goes into (poppy-0.1/4.2#1 to #4), and a DPoP
// key of its own (poppy-0.1/4.3#5).
func openRelation(dir, user, issuer string) (*relation, error) {
	file := relationFile(dir, user, issuer)
	r, err := loadRelation(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err := beginRelation(file, issuer); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fail(ExitUsage, "4.2", "keeping the User ID").because(err)
		}
		// Of two runs at once the first one's User ID counts for both: it must be stable.
		r, err = loadRelation(file)
	}
	if err != nil {
		return nil, fail(ExitUsage, "4.2", "reading what is kept of %s", issuer).because(err)
	}
	if r.Issuer != issuer {
		return nil, fail(ExitUsage, "4.2", "%s belongs to %s", file, r.Issuer)
	}
	return r, nil
}

func loadRelation(file string) (*relation, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &relation{file: file}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	key, err := decodeKey(r.DPoPKey)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if r.signer, err = jose.NewSigner(key); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if r.Nonces == nil {
		r.Nonces = map[string]string{}
	}
	return r, nil
}

func beginRelation(file, issuer string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	text, err := encodeKey(key)
	if err != nil {
		return err
	}
	raw, err := json.MarshalIndent(&relation{Issuer: issuer, UserID: "usr_" + randomText(18), DPoPKey: text}, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the relation: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return createPrivate(file, raw)
}

func (r *relation) save() error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = writePrivate(r.file, raw)
	}
	if err != nil {
		return fail(ExitUsage, "", "keeping the agent's state").because(err)
	}
	return nil
}
