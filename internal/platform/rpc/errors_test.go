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
