package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRelay_AMessageReachesTheBackendAndItsAnswerTheAgent(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		co := in.company(t, withDomain)
		secret, public := co.signing(t)
		s := co.visitor(t)
		id := s.talk(t, "Where is my order?")
		got := co.backend.next(t)
		got.verify(t, secret)
		got.verify(t, public)
		events := s.settled(t, id)
		require.Equal(t, []string{"user", "working", "company", "idle"}, shape(events))
		require.Equal(t, "You said: Where is my order?", events[2].words())
		require.Equal(t, http.StatusOK, s.read(t, id, "").status)
	})
}
