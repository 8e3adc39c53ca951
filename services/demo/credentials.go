package demo

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/services/demo/identity"
)

const (
	codeLifetime = 10 * time.Minute
	codeTries    = 5
	keptCodes    = 10000
)

// phone is where an account's one-time codes go. The demo sends none: the code is always the same.
type phone struct{ sentTo, code string }

func phones() map[string]phone {
	return map[string]phone{ken: {sentTo: "Text to the phone number ending in 28", code: "271828"}}
}

// A CredentialCheck answers whether credentials, and then a one-time code, are right.
// What it is told stays in memory and out of its log.
type CredentialCheck struct {
	mail     *mailbox
	accounts identity.Accounts
	phones   map[string]phone

	mu    sync.Mutex
	asked *recent[askedCode]
}

// askedCode is a one-time code that somebody was asked for.
type askedCode struct {
	account string
	until   time.Time
	tries   int
}

func newCredentialCheck(mail *mailbox, accounts identity.Accounts) *CredentialCheck {
	return &CredentialCheck{mail: mail, accounts: accounts, phones: phones(), asked: newRecent[askedCode](keptCodes)}
}

// check is the part of the webhook that counts.
type check struct {
	Type string `json:"type"`
	Data struct {
		Credentials struct {
			Email    string `json:"email"`
			Password string `json:"password"`
		} `json:"credentials"`
		Code  string `json:"code"`
		State string `json:"state"`
	} `json:"data"`
}

// checked is the answer.
type checked struct {
	Result       string `json:"result"`
	Account      string `json:"account,omitempty"`
	AccountLabel string `json:"account_label,omitempty"`
	SentTo       string `json:"sent_to,omitempty"`
	State        string `json:"state,omitempty"`
	ExpiresIn    int    `json:"expires_in,omitempty"`
}

// ServeHTTP takes one webhook.
func (c *CredentialCheck) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, body, ok := c.mail.receive(w, r)
	if !ok {
		return
	}
	var in check
	if err := json.Unmarshal(body, &in); err != nil {
		refuse(w, http.StatusBadRequest, "invalid_body")
		return
	}
	var out checked
	switch in.Type {
	case webhook.EventCredentials:
		out = c.credentials(in.Data.Credentials.Email, in.Data.Credentials.Password)
	case webhook.EventCode:
		out = c.code(in.Data.State, in.Data.Code)
	default:
		refuse(w, http.StatusBadRequest, "unknown_type")
		return
	}
	answer, err := json.Marshal(out)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "internal")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(answer)
}

func (c *CredentialCheck) credentials(email, password string) checked {
	account, ok := c.accounts.Check(email, password)
	if !ok {
		return checked{Result: "failed"}
	}
	if _, ok := c.phones[account.ID]; !ok {
		return checked{Result: "complete", Account: account.ID, AccountLabel: account.Email}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	state := rand.Text()
	return c.ask(state, askedCode{account: account.ID, until: c.mail.now().Add(codeLifetime)})
}

// code checks a one-time code. A wrong one may be tried again a few times.
func (c *CredentialCheck) code(state, code string) checked {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked, ok := c.asked.get(state)
	account, known := c.accounts.ByID(asked.account)
	if !ok || !known || asked.tries >= codeTries || !c.mail.now().Before(asked.until) {
		return checked{Result: "failed"}
	}
	asked.tries++
	if subtle.ConstantTimeCompare([]byte(code), []byte(c.phones[asked.account].code)) == 1 {
		asked.tries = codeTries // it works once
		c.asked.put(state, asked)
		return checked{Result: "complete", Account: account.ID, AccountLabel: account.Email}
	}
	if asked.tries == codeTries {
		c.asked.put(state, asked)
		return checked{Result: "failed"}
	}
	return c.ask(state, asked)
}

func (c *CredentialCheck) ask(state string, asked askedCode) checked {
	c.asked.put(state, asked)
	// Rounded up, and more than nothing: it has not expired yet.
	left := int((asked.until.Sub(c.mail.now()) + time.Second - 1) / time.Second)
	return checked{Result: "code_required", SentTo: c.phones[asked.account].sentTo, State: state, ExpiresIn: left}
}
