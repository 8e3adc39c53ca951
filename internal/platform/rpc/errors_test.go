package rpc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// A problem keeps its reason and its advice when a time-out was what caused it.
func TestToStatus_ProblemOfATimeoutStaysAProblem(t *testing.T) {
	unavailable := problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "poppy-0.1/4.3#22", "the service is briefly unavailable").
		WithRetryAfter(time.Second).WithCause(context.DeadlineExceeded)
	got := problem.As(rpc.FromStatus(rpc.ToStatus(unavailable).Err()))
	require.Equal(t, problem.TemporarilyUnavailable, got.Reason)
	require.Equal(t, time.Second, got.RetryAfter)

	refused := problem.New(problem.Unauthenticated, problem.InvalidClient, "", "the client document could not be fetched").WithCause(context.DeadlineExceeded)
	require.Equal(t, problem.InvalidClient, problem.As(rpc.FromStatus(rpc.ToStatus(refused).Err())).Reason)

	require.Equal(t, codes.DeadlineExceeded, rpc.ToStatus(context.DeadlineExceeded).Code())
	require.Equal(t, codes.Canceled, rpc.ToStatus(errors.Join(errors.New("reading"), context.Canceled)).Code())
}

// Who comes too often is always told when to come again, as over HTTP.
func TestToStatus_TooOftenSaysWhenAgain(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: time.Second, 7 * time.Second: 7 * time.Second} {
		st := rpc.ToStatus(&problem.Error{Kind: problem.RateLimited, Reason: problem.QuotaExceeded, RetryAfter: given})
		require.Equal(t, codes.ResourceExhausted, st.Code())
		require.Equal(t, want, problem.As(rpc.FromStatus(st.Err())).RetryAfter)
	}
}
