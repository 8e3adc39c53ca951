// Package rpc is the gRPC of the service of authorization: how it reaches foreign
// servers, by the egress of the installation, and its part of the admin API.
package rpc

import (
	"context"
	"net/http"

	"google.golang.org/protobuf/types/known/durationpb"

	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/auth/agents"
)

// Fetcher fetches agents' documents through the egress service.
type Fetcher struct{ Egress relayv1.EgressServiceClient }

var _ agents.Fetcher = Fetcher{}

// Fetch implements agents.Fetcher.
func (f Fetcher) Fetch(ctx context.Context, r agents.Request) (agents.Response, error) {
	got, err := f.Egress.Fetch(ctx, &relayv1.FetchRequest{Url: r.URL, Accept: r.Accept, MaxBytes: r.MaxBytes, Timeout: durationpb.New(r.Timeout)})
	if err != nil {
		return agents.Response{}, err // ours, not the agent's
	}
	if got.GetFailure() != "" {
		return agents.Response{}, &fetchError{got.GetFailure(), got.GetDetail()}
	}
	header := http.Header{}
	for name, value := range got.GetHeaders() {
		header.Set(name, value)
	}
	return agents.Response{Status: int(got.GetStatus()), Header: header, ContentType: got.GetContentType(), Body: got.GetBody()}, nil
}

// fetchError is a fetch that went wrong between us and the agent's server.
type fetchError struct{ failure, detail string }

// Error names the failure, for the log.
func (e *fetchError) Error() string { return "fetch: " + e.failure + ": " + e.detail }

// SafeDetail says what went wrong in words that the agent may read.
func (e *fetchError) SafeDetail() string { return e.detail }
