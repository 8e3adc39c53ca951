package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// The Company's agent needs the account: the User signs in in the middle of the conversation, which goes on (7.11).
func TestAuthorization_SignInInTheMiddle(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#8", "poppy-0.1/7.11#1", "poppy-0.1/7.11#2", "poppy-0.1/7.11#3", "poppy-0.1/7.11#4", "poppy-0.1/7.11#5", "poppy-0.1/7.11#6",
			"poppy-0.1/7.11#8", "poppy-0.1/7.11#9", "poppy-0.1/7.11#10", "poppy-0.1/7.11#11", "poppy-0.1/7.11#12", "poppy-0.1/7.11#13", "poppy-0.1/7.11#14", "poppy-0.1/7.11#d37")
		clausetest.Refuses(t, "poppy-0.1/7.11#13", "poppy-0.1/7.11#5", "poppy-0.1/7.11#6")
		co := signsIn(t, in)
		co.backend.answer(func(d delivery) reply {
			switch granted := strings.Join(d.body.Data.Session.Scopes, " "); {
			case !d.body.Data.Session.SignedIn:
				return reply{body: `{"authorization":{"error":"sign_in_required"}}`}
			case !strings.Contains(granted, "poppy:write"):
				return reply{body: `{"messages":[{"text":"For that I need more."}],"authorization":{"error":"insufficient_scope","scope":"poppy:read poppy:write"}}`}
			default:
				return says("Done for " + *d.body.Data.Session.Account)
			}
		})
		s := co.visitor(t)
		id := s.talk(t, "Return my order")
		events := s.settled(t, id)
		// Without words of the backend's own, a message asks too.
		require.Equal(t, []string{"user", "working", "company", "authorization", "idle"}, shape(events))
		require.Equal(t, []string{"sign_in_required", ""}, []string{events[3].Error, events[3].Scope})
		require.NotEmpty(t, events[2].words())
		require.NotEmpty(t, events[3].ID)
		_, err := time.Parse(time.RFC3339, events[3].CreatedAt)
		require.NoError(t, err)

		partly := s.as(s.direct(t, "acc-1", "poppy:read").is(t, http.StatusOK, "").str("access_token"))
		partly.post(t, messagesPath(id), text("Now?")).is(t, http.StatusAccepted, "")
		events = partly.settled(t, id)
		require.Equal(t, []string{"user", "working", "company", "authorization", "idle"}, shape(events[5:]))
		require.Equal(t, []string{"insufficient_scope", "poppy:read poppy:write"}, []string{events[8].Error, events[8].Scope})

		wholly := s.as(s.direct(t, "acc-1", "poppy:read", "poppy:write").is(t, http.StatusOK, "").str("access_token"))
		wholly.post(t, messagesPath(id), text("And now?")).is(t, http.StatusAccepted, "")
		events = wholly.settled(t, id)
		require.Equal(t, "Done for acc-1", events[12].words())
		require.Equal(t, id, wholly.read(t, id, "").str("conversation_id"))

		// By the API only what the draft has, and only scopes that the Company offers.
		for _, bad := range []object{
			{"error": "invalid_token"}, {"error": "insufficient_scope"}, {"error": "insufficient_scope", "scope": "poppy:admin"}, {"error": "insufficient_scope", "scope": "a  b"},
		} {
			refused := co.act(t, id, "respond", object{"authorization": bad})
			require.Equal(t, http.StatusBadRequest, refused.status, "%v: %s", bad, refused.raw)
		}
		co.act(t, id, "respond", object{"authorization": object{"error": "sign_in_required", "scope": "poppy:read"}, "messages": []any{object{"text": "Please sign in."}}}).is(t, http.StatusOK, "")
		last := wholly.events(t, id)
		require.Equal(t, []string{"sign_in_required", "poppy:read"}, []string{last[len(last)-1].Error, last[len(last)-1].Scope})
	})
}

// The User signs out in the middle: what the conversation holds of the account is not for a signed-out token (4.9, 7.11).
func TestAuthorization_SignOutInTheMiddle(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.11#15", "poppy-0.1/7.11#d21")
		clausetest.Refuses(t, "poppy-0.1/7.11#15", "poppy-0.1/7.11#d21", "poppy-0.1/7.11#11")
		co := signsIn(t, in)
		s := co.visitor(t)
		got := s.direct(t, "acc-1", "poppy:read", "poppy:write").is(t, http.StatusOK, "")
		signedIn := s.as(got.str("access_token"))
		id := signedIn.talk(t, "Hello")
		signedIn.settled(t, id)
		child := signedIn.directBelow(t, id, "Hi").is(t, http.StatusCreated, "").str("conversation_id")
		signedIn.settled(t, child)
		// A read that waits is over when the sign-in is, and tells nothing more.
		events := signedIn.events(t, child)
		waits := signedIn.request(t, http.MethodGet, eventsPath(child)+"?wait=30&cursor="+events[len(events)-1].ID, nil)
		type result struct {
			got answer
			err error
		}
		held := make(chan result, 1)
		go func() {
			got, err := in.try(waits)
			held <- result{got, err}
		}()
		revoke := s.agent.ClientForm(t, co.tokenEndpoint(), time.Now())
		revoke.Set("token", got.str("refresh_token"))
		in.do(t, request(t, http.MethodPost, co.revocationEndpoint(), revoke.Encode(), header("Content-Type", "application/x-www-form-urlencoded"))).is(t, http.StatusOK, "")
		ended := <-held
		require.NoError(t, ended.err)
		require.NotContains(t, string(ended.got.raw), "message")
		for _, one := range []string{id, child} {
			signedIn.read(t, one, "").is(t, http.StatusForbidden, "sign_in_required")
			signedIn.post(t, messagesPath(one), text("Still me")).is(t, http.StatusForbidden, "sign_in_required")
			signedIn.post(t, handoffPath(one), "{}").is(t, http.StatusForbidden, "sign_in_required")
			signedIn.post(t, closePath(one), "{}").is(t, http.StatusForbidden, "sign_in_required")
		}
		signedIn.directBelow(t, id, "Hi").is(t, http.StatusForbidden, "sign_in_required")
		// Signed in again, in a new Session, it goes on.
		again := s.again(t)
		back := again.as(again.direct(t, "acc-1", "poppy:read").is(t, http.StatusOK, "").str("access_token"))
		back.post(t, messagesPath(child), text("Here again")).is(t, http.StatusAccepted, "")
		require.Equal(t, child, back.read(t, child, "").str("conversation_id"))
	})
}
