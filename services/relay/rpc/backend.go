// Package rpc translates between the gRPC services that relay owns and its use
// cases. It decides nothing.
package rpc

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/relay/app"
)

// Backends implements adminv1.BackendServiceServer.
type Backends struct {
	adminv1.UnimplementedBackendServiceServer
	App *app.App
}

// GetBackend implements the service.
func (s *Backends) GetBackend(ctx context.Context, req *adminv1.GetBackendRequest) (*adminv1.Backend, error) {
	scope, err := scopeOf(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	b, err := s.App.Backend(ctx, scope)
	if err != nil {
		return nil, err
	}
	return backend(scope, b), nil
}

// UpdateBackend implements the service.
func (s *Backends) UpdateBackend(ctx context.Context, req *adminv1.UpdateBackendRequest) (*adminv1.Backend, error) {
	in := req.GetBackend()
	scope, err := scopeOf(ctx, in.GetName())
	if err != nil {
		return nil, err
	}
	has, err := resource.Mask(req.GetUpdateMask(), []string{"url", "attempt_timeout", "deliver_late"}, func(f string) bool {
		return f == "url" && in.GetUrl() != "" || f == "attempt_timeout" && in.GetAttemptTimeout() != nil || f == "deliver_late" && in.GetDeliverLate()
	})
	if err != nil {
		return nil, err
	}
	ch := app.BackendChange{ETag: in.GetEtag(), ValidateOnly: req.GetValidateOnly()}
	if has("url") {
		ch.URL = &in.Url
	}
	if has("attempt_timeout") {
		d := in.GetAttemptTimeout().AsDuration()
		ch.AttemptTimeout = &d
	}
	if has("deliver_late") {
		ch.DeliverLate = &in.DeliverLate
	}
	b, err := s.App.UpdateBackend(ctx, scope, ch)
	if err != nil {
		return nil, err
	}
	return backend(scope, b), nil
}

// EnableBackend implements the service.
func (s *Backends) EnableBackend(ctx context.Context, req *adminv1.EnableBackendRequest) (*adminv1.Backend, error) {
	scope, err := scopeOf(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	b, err := s.App.EnableBackend(ctx, scope)
	if err != nil {
		return nil, err
	}
	return backend(scope, b), nil
}

// RotateBackendSecret implements the service.
func (s *Backends) RotateBackendSecret(ctx context.Context, req *adminv1.RotateBackendSecretRequest) (*adminv1.BackendSecret, error) {
	scope, err := scopeOf(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	kind := app.HMAC
	if req.GetKind() == adminv1.SecretKind_SECRET_KIND_ED25519 {
		kind = app.Ed25519
	}
	made, value, err := s.App.RotateSecret(ctx, scope, kind, req.GetOverlap().AsDuration())
	if err != nil {
		return nil, err
	}
	out := secret(scope, made)
	out.Secret = value
	return out, nil
}

// ListBackendSecrets implements the service.
func (s *Backends) ListBackendSecrets(ctx context.Context, req *adminv1.ListBackendSecretsRequest) (*adminv1.ListBackendSecretsResponse, error) {
	scope, err := scopeOf(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	got, err := s.App.Secrets(ctx, scope)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListBackendSecretsResponse{}
	for _, one := range got {
		out.Secrets = append(out.Secrets, secret(scope, one))
	}
	return out, nil
}

// scopeOf returns the call's scope once name is found to be its backend.
func scopeOf(ctx context.Context, name string) (tenancy.Scope, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return tenancy.Scope{}, err
	}
	ids, err := resource.Child(scope, name, "backend")
	if err == nil && len(ids) != 0 {
		err = resource.NotFound()
	}
	return scope, err
}

func backend(scope tenancy.Scope, b app.Backend) *adminv1.Backend {
	state := adminv1.BackendState_BACKEND_STATE_ENABLED
	switch {
	case b.URL == "":
		state = adminv1.BackendState_BACKEND_STATE_NOT_SET
	case !b.Enabled:
		state = adminv1.BackendState_BACKEND_STATE_DISABLED
	}
	timeout := b.AttemptTimeout
	if timeout == 0 {
		timeout = app.DefaultAttemptTimeout
	}
	return &adminv1.Backend{
		Name: scope.Name() + "/backend", Url: b.URL, State: state, DisableReason: b.DisableReason, AttemptTimeout: durationpb.New(timeout),
		DeliverLate: b.DeliverLate, CreateTime: stamp(b.CreatedAt), UpdateTime: stamp(b.UpdatedAt), Etag: resource.ETag(b.Version),
	}
}

func secret(scope tenancy.Scope, s app.Secret) *adminv1.BackendSecret {
	kind := adminv1.SecretKind_SECRET_KIND_HMAC
	if s.Kind == app.Ed25519 {
		kind = adminv1.SecretKind_SECRET_KIND_ED25519
	}
	out := &adminv1.BackendSecret{
		Name: scope.Name() + "/backend/secrets/" + s.ID, Kind: kind, PublicKey: s.PublicKey, Prefix: s.Prefix, CreateTime: stamp(s.CreatedAt),
	}
	if s.ExpiresAt != nil {
		out.ExpireTime = stamp(*s.ExpiresAt)
	}
	return out
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
