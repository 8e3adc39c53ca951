package natstest_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/natstest"
)

func stream(t *testing.T, c *nats.Conn) jetstream.Stream {
	t.Helper()
	js, err := jetstream.New(c)
	require.NoError(t, err)
	s, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "T", Subjects: []string{"t.>"}})
	require.NoError(t, err)
	return s
}

func publish(t *testing.T, c *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(c)
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "t.a", []byte("x"))
	require.NoError(t, err)
}

func TestStart_AcknowledgedMessagesSurviveAKill(t *testing.T) {
	s := natstest.Start(t)
	c := s.Connect(t)
	stream(t, c)
	publish(t, c)

	s.Kill(t)
	s.Restart(t)

	require.Eventually(t, c.IsConnected, 10*time.Second, 10*time.Millisecond)
	info, err := stream(t, c).Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, info.State.Msgs)
}

func TestEmbedded_HasJetStream(t *testing.T) {
	c := natstest.Embedded(t)
	s := stream(t, c)
	publish(t, c)
	info, err := s.Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, info.State.Msgs)
}
