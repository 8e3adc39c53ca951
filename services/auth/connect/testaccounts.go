package connect

import (
	"crypto/subtle"
	"encoding/json"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
)

// What a Company's test accounts are sealed for.
const (
	accountsPurpose = "test accounts"
	accountsID      = "accounts"
)

// testCodeHint stands where a Company says where the code went.
const testCodeHint = "Nowhere: use the code set for this test account"

// testAccount is a made-up account. The hashes are those of keys.HashToken: made-up
// passwords are worth no slow hash, and are at a Company for trying out only.
type testAccount struct {
	Account      string `json:"account"`
	Label        string `json:"label"`
	Username     string `json:"username"`
	PasswordHash string `json:"password_hash"`
	CodeHash     string `json:"code_hash"` // empty: no code is asked for
}

// TestUser is what may be shown of a made-up account.
type TestUser struct{ Username, Label string }

// TestUsers returns the Company's made-up accounts; none unless its Users sign in with them.
func (c *Credentials) TestUsers(company *directory.Company) ([]TestUser, error) {
	if company.SignIn == nil || company.SignIn.Method != directory.TestAccounts {
		return nil, nil
	}
	accounts, err := c.testAccounts(company)
	if err != nil {
		return nil, err
	}
	out := make([]TestUser, len(accounts))
	for i, a := range accounts {
		out[i] = TestUser{Username: a.Username, Label: a.label()}
	}
	return out, nil
}

func (a testAccount) label() string {
	if a.Label == "" {
		return a.Username
	}
	return a.Label
}

func (c *Credentials) testAccounts(company *directory.Company) ([]testAccount, error) {
	if len(company.SignIn.SealedTestAccounts) == 0 {
		return nil, nil
	}
	plain, err := c.keys.Open(company.Scope.CompanyID(), accountsPurpose, accountsID, company.SignIn.SealedTestAccounts)
	if err != nil {
		return nil, unavailable("settings", "the test accounts do not open")
	}
	var out []testAccount
	if err := json.Unmarshal(plain, &out); err != nil { // its text may quote what is sealed
		return nil, unavailable("settings", "the test accounts are malformed")
	}
	return out, nil
}

// checkTestAccount compares with every account, and a password with some hash always:
// how long it takes says nothing about which usernames there are.
func (c *Credentials) checkTestAccount(company *directory.Company, fields map[string]string) (Verdict, error) {
	accounts, err := c.testAccounts(company)
	if err != nil {
		return Verdict{}, err
	}
	username, password := c.testLogin(company, fields)
	companyID := company.Scope.CompanyID()
	usernameHash, passwordHash := keys.HashToken(companyID, username), keys.HashToken(companyID, password)
	found, right := -1, 0
	for i, a := range accounts {
		name := subtle.ConstantTimeCompare([]byte(keys.HashToken(companyID, a.Username)), []byte(usernameHash))
		pass := subtle.ConstantTimeCompare([]byte(a.PasswordHash), []byte(passwordHash))
		found = subtle.ConstantTimeSelect(name&pass, i, found)
		right |= name & pass
	}
	if right != 1 {
		return Verdict{Outcome: Failed}, nil
	}
	return accounts[found].passed(), nil
}

// passed is the Verdict once the password was right.
func (a testAccount) passed() Verdict {
	if a.CodeHash != "" {
		return a.codeRequired()
	}
	return a.complete()
}

func (a testAccount) complete() Verdict {
	return Verdict{Outcome: Complete, Account: Account{ID: a.Account, Label: a.label()}}
}

func (a testAccount) codeRequired() Verdict {
	return Verdict{Outcome: CodeRequired, SentTo: testCodeHint, State: a.Username}
}

// testLogin picks username and password out of the Company's fields: the first one
// that is no secret, and the first one that is.
func (c *Credentials) testLogin(company *directory.Company, fields map[string]string) (username, password string) {
	hasName, hasPassword := false, false
	for _, f := range c.Fields(company) {
		switch {
		case f.Secret && !hasPassword:
			password, hasPassword = fields[f.Name], true
		case !f.Secret && !hasName:
			username, hasName = fields[f.Name], true
		}
	}
	return username, password
}

func (c *Credentials) checkTestCode(company *directory.Company, state, code string) (Verdict, error) {
	accounts, err := c.testAccounts(company)
	if err != nil {
		return Verdict{}, err
	}
	hash := keys.HashToken(company.Scope.CompanyID(), code)
	for _, a := range accounts {
		// state is ours, sealed meanwhile: which account it names is no secret.
		if a.Username != state || a.CodeHash == "" {
			continue
		}
		if subtle.ConstantTimeCompare([]byte(a.CodeHash), []byte(hash)) == 1 {
			return a.complete(), nil
		}
		return a.codeRequired(), nil
	}
	return Verdict{Outcome: Failed}, nil // the account was taken away in between
}
