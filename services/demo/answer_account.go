package demo

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Scopes that the shop asks for: the protocol's two and one of its own (Poppy 4.4).
const (
	scopeRead      = "poppy:read"
	scopeWrite     = "poppy:write"
	scopeAddresses = "addresses"
)

const maxAddress = 200

// An asker is whom the webhook's session says the question comes from.
type asker struct {
	signedIn bool
	account  string
	scopes   []string
}

// may says whether the User granted one of scopes. Each stands for itself: who may
// write may not read for that.
func (a asker) may(scopes ...string) bool {
	return a.signedIn && a.account != "" && slices.ContainsFunc(scopes, func(s string) bool { return slices.Contains(a.scopes, s) })
}

func (a asker) owns(o Order) bool { return a.may(scopeRead) && a.account == o.Account }

// latest is the number of the order that somebody means who names none, or what is
// said where there is none to tell.
func (s *shop) latest(who asker, say phrases, now time.Time) (number string, instead *answer) {
	refuse := func(a answer) (string, *answer) { return "", &a }
	switch {
	case !who.signedIn:
		return refuse(asksSignIn(say.signInForOrders))
	case !who.may(scopeRead):
		return refuse(asksScope(say, scopeRead))
	}
	own := s.ordersOf(who.account, now)
	if len(own) == 0 {
		return refuse(says(say.noOrders, nil))
	}
	return own[0].Number, nil
}

// replyAddress tells or changes the asker's delivery address.
func (s *shop) replyAddress(q question, what intent, mem memory, say phrases) (answer, memory) {
	address := newAddress(q.text, q.data, mem.pending == changesAddress)
	mem.pending = ""
	one := func(text string, data map[string]any) (answer, memory) { return says(text, data), mem }
	if address != "" {
		what = changesAddress
	}
	switch {
	case !q.who.signedIn:
		return asksSignIn(say.signInForAddress), mem
	case what == asksAddress && !q.who.may(scopeRead, scopeAddresses),
		what == changesAddress && !q.who.may(scopeWrite, scopeAddresses):
		return asksScope(say, scopeAddresses), mem
	case what == asksAddress:
		address = s.address(q.who.account)
		return one(fmt.Sprintf(say.address, address), map[string]any{"delivery_address": address})
	case address == "":
		mem.pending = changesAddress
		return one(say.whichAddress, nil)
	default:
		s.setAddress(q.who.account, address)
		return one(fmt.Sprintf(say.addressChanged, address), map[string]any{"delivery_address": address})
	}
}

// newAddress finds the address to deliver to from now on: in data, behind words such
// as "address to", or, where it was asked for, in the whole text. An address has a number.
func newAddress(text string, data map[string]any, asked bool) string {
	address, _ := data["delivery_address"].(string)
	if address == "" {
		if m := regexp.MustCompile(`(?is)(?:address|adresse|anschrift|moved|umgezogen)\b.*?(?:\b(?:to|is|nach|auf|lautet)\b:?|:)\s*(.+)$`).FindStringSubmatch(text); m != nil {
			address = m[1]
		} else if asked {
			address = text
		}
	}
	address = strings.Trim(strings.Join(strings.Fields(address), " "), " .!?")
	if len(address) > maxAddress || !strings.ContainsAny(address, "0123456789") {
		return ""
	}
	return address
}
