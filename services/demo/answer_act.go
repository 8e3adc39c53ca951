package demo

import (
	"fmt"
	"strings"
)

// An answer is what the shop says and does on a message, in the form of the answer to
// a webhook. The zero value says nothing.
type answer struct {
	Messages      []said         `json:"messages,omitempty"`
	Authorization *authorization `json:"authorization,omitempty"`
	RequestUser   *reason        `json:"request_user,omitempty"`
	HandOff       *reason        `json:"hand_off,omitempty"`
	Close         bool           `json:"close,omitempty"`

	way way
}

// A way is how an answer gets to Poppyfield.
type way int

const (
	inResponse way = iota // as JSON in the response to the webhook
	inPieces              // in the response, as server-sent events
	later                 // by the admin API, when it is found
)

type (
	// said is one message of the shop.
	said struct {
		Text string         `json:"text"`
		Data map[string]any `json:"data,omitempty"`
	}
	authorization struct {
		Error string `json:"error"`
		Scope string `json:"scope,omitempty"`
	}
	reason struct {
		Reason string `json:"reason"`
	}
)

func says(text string, data map[string]any) answer {
	return answer{Messages: []said{{text, data}}}
}

// asksSignIn asks for the User's account (Poppy 7.11), in words too.
func asksSignIn(text string) answer {
	a := says(text, nil)
	a.Authorization = &authorization{Error: "sign_in_required"}
	return a
}

func asksScope(say phrases, scope string) answer {
	a := says(fmt.Sprintf(say.missingScope, scope), nil)
	a.Authorization = &authorization{Error: "insufficient_scope", Scope: scope}
	return a
}

// act is an answer that does more than saying something, or comes in another way.
func (s *shop) act(what intent, q question, say phrases) answer {
	switch what {
	case wantsPerson:
		a := says(say.person, nil)
		a.HandOff = &reason{"The customer wants to talk to a person."}
		return a
	case wantsCall:
		if q.direct {
			return says(say.here, nil)
		}
		a := says(say.callYou, nil)
		a.RequestUser = &reason{say.callReason}
		return a
	case saysGoodbye:
		a := says(say.goodbye, nil)
		a.Close = true
		return a
	case asksKitchen:
		a := says(say.kitchen, map[string]any{"kitchen": map[string]any{"busy": false, "wait_minutes": 10}})
		a.way = later
		return a
	default: // asksStory
		a := says(s.story(say), nil)
		a.way = inPieces
		return a
	}
}

// story is the menu in whole sentences.
func (s *shop) story(say phrases) string {
	lines := make([]string, len(s.menu))
	for i, d := range s.menu {
		lines[i] = fmt.Sprintf("%s (%s): %s.", d.Name, d.Price(), d.Description)
	}
	return say.story + " " + strings.Join(lines, " ")
}
