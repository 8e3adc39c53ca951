package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
)

// An Account is one customer's.
type Account struct {
	ID       string // stable, the subject of ID Tokens; without a colon
	Name     string
	Email    string
	Password string
}

// Accounts are the customers.
type Accounts []Account

// Demo returns the demo's customers. Their password is no secret: the login page shows it.
func Demo() Accounts {
	return Accounts{
		{ID: "customer-1001", Name: "Mia", Email: "mia@noodle-bar.example", Password: "noodles"},
		{ID: "customer-1002", Name: "Ken", Email: "ken@noodle-bar.example", Password: "noodles"},
	}
}

// ByID finds an account by its id.
func (a Accounts) ByID(id string) (Account, bool) {
	for _, account := range a {
		if account.ID == id {
			return account, true
		}
	}
	return Account{}, false
}

// Check finds the account of an e-mail address and its password. It compares every
// account, so that the time taken says nothing about which addresses there are.
func (a Accounts) Check(email, password string) (Account, bool) {
	email = strings.ToLower(strings.TrimSpace(email))
	var found Account
	ok := false
	for _, account := range a {
		if same(email, account.Email)&same(password, account.Password) == 1 {
			found, ok = account, true
		}
	}
	return found, ok
}

// same compares digests, so that lengths don't show either.
func same(a, b string) int {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:])
}
