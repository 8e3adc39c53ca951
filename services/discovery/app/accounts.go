package app

import (
	"encoding/json"
	"fmt"

	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
)

// TestAccount is a made-up account as it may be shown.
type TestAccount struct {
	Account, Label, Username string
	AsksForCode              bool
}

// NewTestAccount is a made-up account to be stored. An empty password or code leaves the
// one that is stored for the account; without AsksForCode there is no code.
type NewTestAccount struct {
	TestAccount
	Password    keys.Secret
	OneTimeCode keys.Secret
}

// sealedAccount is an account as it is sealed. Hashes are HashToken's, which is enough
// for passwords that protect nothing.
type sealedAccount struct {
	Account      string `json:"account"`
	Label        string `json:"label,omitempty"`
	Username     string `json:"username"`
	PasswordHash string `json:"password_hash"`
	CodeHash     string `json:"code_hash,omitempty"`
}

// TestAccounts returns the test accounts of a connection.
func (a *App) TestAccounts(companyID string, conn Connection) ([]TestAccount, error) {
	stored, err := a.openAccounts(companyID, conn)
	if err != nil {
		return nil, err
	}
	out := make([]TestAccount, len(stored))
	for i, s := range stored {
		out[i] = TestAccount{Account: s.Account, Label: s.Label, Username: s.Username, AsksForCode: s.CodeHash != ""}
	}
	return out, nil
}

func (a *App) openAccounts(companyID string, conn Connection) ([]sealedAccount, error) {
	if len(conn.SealedAccounts) == 0 {
		return nil, nil
	}
	raw, err := a.keys.Open(companyID, accountsPurpose, accountsID, conn.SealedAccounts)
	if err != nil {
		return nil, fmt.Errorf("test accounts of %s: %w", companyID, err)
	}
	var out []sealedAccount
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("test accounts of %s: %w", companyID, err)
	}
	return out, nil
}

// changeAccounts replaces the test accounts, keeping the secrets of those that stay.
func (a *App) changeAccounts(c Company, conn *Connection, accounts []NewTestAccount) error {
	if len(accounts) == 0 {
		conn.SealedAccounts = nil
		return nil
	}
	if c.Kind != Test {
		return onlyForTests("sign_in_connection.test_accounts")
	}
	stored, err := a.openAccounts(c.ID, *conn)
	if err != nil {
		return err
	}
	before := make(map[string]sealedAccount, len(stored))
	for _, s := range stored {
		before[s.Account] = s
	}
	byAccount, byUsername := map[string]bool{}, map[string]bool{}
	next := make([]sealedAccount, len(accounts))
	for i, n := range accounts {
		at := fmt.Sprintf("sign_in_connection.test_accounts[%d]", i)
		if err := checkAccount(at, n.TestAccount); err != nil {
			return err
		}
		if byAccount[n.Account] {
			return resource.Invalid(at+".account", "is there twice")
		}
		if byUsername[n.Username] {
			return resource.Invalid(at+".username", "is there twice")
		}
		byAccount[n.Account], byUsername[n.Username] = true, true
		if next[i], err = n.seal(c.ID, at, before[n.Account]); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(next)
	if err != nil {
		return err
	}
	conn.SealedAccounts, err = a.keys.Seal(c.ID, accountsPurpose, accountsID, raw)
	return err
}

// seal returns n as it is stored, with what it leaves from before.
func (n NewTestAccount) seal(companyID, at string, before sealedAccount) (sealedAccount, error) {
	out := sealedAccount{Account: n.Account, Label: n.Label, Username: n.Username, PasswordHash: before.PasswordHash}
	if !n.Password.IsZero() {
		out.PasswordHash = keys.HashToken(companyID, n.Password.Reveal())
	}
	if out.PasswordHash == "" {
		return sealedAccount{}, resource.Invalid(at+".password", "required for a new account")
	}
	switch {
	case !n.OneTimeCode.IsZero():
		out.CodeHash = keys.HashToken(companyID, n.OneTimeCode.Reveal())
	case !n.AsksForCode:
	case before.CodeHash == "":
		return sealedAccount{}, resource.Invalid(at+".one_time_code", "required for an account that asks for one and has none")
	default:
		out.CodeHash = before.CodeHash
	}
	return out, nil
}
