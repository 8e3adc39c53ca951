package rpc

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Names of the metadata that internal calls carry.
const (
	mdCompany = "x-poppyfield-company"
	mdCaller  = "x-poppyfield-caller"
	mdSecret  = "x-poppyfield-secret"
	mdActor   = "x-poppyfield-actor"
)

type actorKey struct{}

// WithActor returns ctx saying on whose behalf an internal call is made: the name of an API key.
func WithActor(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, actorKey{}, name)
}

// Actor returns the key on whose behalf the call is made; empty for the installation itself.
func Actor(ctx context.Context) string {
	s, _ := ctx.Value(actorKey{}).(string)
	return s
}

// outgoing writes scope and actor of ctx into the call's metadata.
func outgoing(ctx context.Context, caller, secret string) context.Context {
	kv := []string{mdCaller, caller, mdSecret, secret}
	if s, err := tenancy.From(ctx); err == nil {
		kv = append(kv, mdCompany, s.CompanyID())
	}
	if a := Actor(ctx); a != "" {
		kv = append(kv, mdActor, a)
	}
	return metadata.AppendToOutgoingContext(ctx, kv...)
}

func one(md metadata.MD, name string) string {
	if v := md.Get(name); len(v) == 1 {
		return v[0]
	}
	return ""
}
