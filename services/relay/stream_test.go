package relay_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

// streams makes the site answer with a stream of these events, then end as it says.
func (s *site) streams(end func(), events ...string) {
	s.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			_, _ = io.WriteString(w, e+"\n\n")
			w.(http.Flusher).Flush()
		}
		if end != nil {
			end()
		}
	})
}

const (
	firstPiece  = "event: text-delta\ndata: {\"text\":\"It is \"}"
	secondPiece = "event: text-delta\ndata: {\"text\":\"on its way.\"}"
	theEnd      = "event: done\ndata: {}"
)

func TestDeliver_AStreamedAnswerComesInFrames(t *testing.T) {
	r := newRig(t)
	r.point(t)
	next := make(chan struct{})
	r.site.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, firstPiece+"\n\n")
		w.(http.Flusher).Flush()
		<-next
		_, _ = io.WriteString(w, secondPiece+"\n\nevent: answer\ndata: "+
			`{"authorization":{"error":"insufficient_scope","scope":"poppy:read"},"request_user":{"reason":"To confirm."},"hand_off":{"reason":"Damaged."}}`+"\n\n"+theEnd+"\n\n")
	})
	stream, err := r.deliveries.Deliver(r.ctx(t), &relayv1.DeliverRequest{DeliveryId: "dlv_1", Body: []byte(`{}`)})
	require.NoError(t, err)
	frame, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "It is ", frame.GetTextDelta(), "while the backend still writes")
	require.Zero(t, frame.GetOutcome())
	close(next)
	text := frame.GetTextDelta()
	for frame.GetOutcome() == 0 {
		frame, err = stream.Recv()
		require.NoError(t, err)
		text += frame.GetTextDelta()
	}
	require.Equal(t, "It is on its way.", text)
	require.Equal(t, answered, frame.GetOutcome(), frame.GetReason())
	require.Len(t, frame.GetMessages(), 1)
	require.Equal(t, text, frame.GetMessages()[0].GetText())
	require.Equal(t, "insufficient_scope poppy:read", frame.GetAuthorizationError()+" "+frame.GetAuthorizationScope())
	require.Equal(t, "To confirm.", frame.GetRequestUser())
	require.True(t, frame.GetHandOff())
	require.Equal(t, "Damaged.", frame.GetHandOffReason())
	require.False(t, frame.GetClose())
	require.Contains(t, r.site.last(t).header.Get("Accept"), "text/event-stream")
}

func TestDeliver_AStreamThatBreaksOffIsTriedAgain(t *testing.T) {
	r := newRig(t)
	r.point(t)
	for reason, end := range map[string]func(){
		"answer not readable":        func() { panic(http.ErrAbortHandler) },
		"answer breaks the contract": nil, // ends without the end
	} {
		r.site.streams(end, firstPiece, secondPiece)
		pieces, got := r.frames(t, &relayv1.DeliverRequest{DeliveryId: "dlv_1", Body: []byte(`{}`)})
		require.Equal(t, retry, got.GetOutcome())
		require.Equal(t, reason, got.GetReason())
		require.Empty(t, got.GetMessages(), "half an answer is none")
		require.Equal(t, "It is ", pieces[0])
	}
	r.site.streams(nil, firstPiece, secondPiece, theEnd)
	_, got := r.frames(t, &relayv1.DeliverRequest{DeliveryId: "dlv_1", Body: []byte(`{}`)})
	require.Equal(t, answered, got.GetOutcome(), got.GetReason())
}

// One conversation's spoilt answers don't hold the others back, though they count for the health.
func TestDeliver_SpoiltAnswersLeaveTheBreakerClosed(t *testing.T) {
	r := newRig(t)
	r.point(t)
	for range 8 {
		r.site.streams(func() { panic(http.ErrAbortHandler) }, firstPiece)
		require.Equal(t, retry, r.deliver(t, "dlv_1", `{}`).GetOutcome())
		r.site.with(http.StatusOK, `{"messages":"none"}`, "Content-Type", "application/json")
		require.Equal(t, retry, r.deliver(t, "dlv_2", `{}`).GetOutcome())
	}
	h := r.backend(t).GetHealth()
	require.Equal(t, "closed", h.GetBreaker())
	require.EqualValues(t, 16, h.GetFailuresInSeries())
	require.Zero(t, h.GetSuccessRate())
	r.site.streams(nil, firstPiece, theEnd)
	require.Equal(t, answered, r.deliver(t, "dlv_3", `{}`).GetOutcome())
}

func TestDeliver_ALongAnswerToATrialHoldsNobodyBack(t *testing.T) {
	r := newRig(t)
	r.point(t)
	r.site.with(http.StatusInternalServerError, "")
	for range 5 {
		require.Equal(t, retry, r.deliver(t, "dlv_1", `{}`).GetOutcome())
	}
	require.Equal(t, held, r.deliver(t, "dlv_1", `{}`).GetOutcome())
	r.clock.Advance(10 * time.Second)
	more := make(chan struct{})
	r.site.streams(func() { <-more }, firstPiece)
	stream, err := r.deliveries.Deliver(r.ctx(t), &relayv1.DeliverRequest{DeliveryId: "dlv_1", Body: []byte(`{}`)})
	require.NoError(t, err)
	frame, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "It is ", frame.GetTextDelta())
	r.site.streams(nil, firstPiece, theEnd)
	require.Equal(t, answered, r.deliver(t, "dlv_2", `{}`).GetOutcome(), "while the trial's answer still comes")
	close(more)
	frame, err = stream.Recv()
	require.NoError(t, err)
	require.Equal(t, retry, frame.GetOutcome(), "it ended too soon")
	require.Equal(t, "closed", r.backend(t).GetHealth().GetBreaker())
}

func TestDeliver_ManySmallPiecesMakeFewFrames(t *testing.T) {
	r := newRig(t)
	r.point(t)
	events := strings.Repeat("event: text-delta\ndata: {\"text\":\"ab\"}\n\n", 1000)
	r.site.streams(nil, events+theEnd)
	pieces, got := r.frames(t, &relayv1.DeliverRequest{DeliveryId: "dlv_1", Body: []byte(`{}`)})
	require.Equal(t, answered, got.GetOutcome(), got.GetReason())
	require.Equal(t, strings.Repeat("ab", 1000), strings.Join(pieces, ""))
	require.Less(t, len(pieces), 100, "2,000 bytes go in pieces of about 64")
}
