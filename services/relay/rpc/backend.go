// Package rpc translates between the gRPC services that relay owns and its use
// cases. It decides nothing.
package rpc

import (
	"context"
	"slices"
	"time"

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
	return s.backend(scope, b), nil
}

var backendFields = append([]string{
	"kind", "url", "ack_timeout", "attempt_timeout", "deliver_late", "api_key", "model", "instructions", "history",
}, policyFields...)

// UpdateBackend implements the service.
func (s *Backends) UpdateBackend(ctx context.Context, req *adminv1.UpdateBackendRequest) (*adminv1.Backend, error) {
	in := req.GetBackend()
	scope, err := scopeOf(ctx, in.GetName())
	if err != nil {
		return nil, err
	}
	has, err := resource.Mask(req.GetUpdateMask(), backendFields, func(f string) bool { return backendHas(in, f) || policyHas(in.GetPolicy(), f) })
	if err != nil {
		return nil, err
	}
	ch := app.BackendChange{Policy: policyChange(in.GetPolicy(), has), ETag: in.GetEtag(), ValidateOnly: req.GetValidateOnly()}
	if has("kind") {
		kind := kinds[in.GetKind()]
		ch.Kind = &kind
	}
	if has("ack_timeout") {
		d := in.GetAckTimeout().AsDuration()
		ch.AckTimeout = &d
	}
	if has("attempt_timeout") {
		d := in.GetAttemptTimeout().AsDuration()
		ch.AttemptTimeout = &d
	}
	if has("history") {
		n := int(in.GetHistory())
		ch.History = &n
	}
	// The key never came back to whoever sends all fields: it is only taken away by name.
	if has("api_key") && (in.GetApiKey() != "" || slices.Contains(req.GetUpdateMask().GetPaths(), "api_key")) {
		ch.APIKey = &in.ApiKey
	}
	for field, to := range map[string]struct {
		from *string
		to   **string
	}{"url": {&in.Url, &ch.URL}, "model": {&in.Model, &ch.Model}, "instructions": {&in.Instructions, &ch.Instructions}} {
		if has(field) {
			*to.to = to.from
		}
	}
	if has("deliver_late") {
		ch.DeliverLate = &in.DeliverLate
	}
	b, err := s.App.UpdateBackend(ctx, scope, ch)
	if err != nil {
		return nil, err
	}
	return s.backend(scope, b), nil
}

// backendHas reports whether a field that isn't the policy's is set.
func backendHas(in *adminv1.Backend, field string) bool {
	switch field {
	case "kind":
		return in.GetKind() != adminv1.BackendKind_BACKEND_KIND_UNSPECIFIED
	case "url":
		return in.GetUrl() != ""
	case "ack_timeout":
		return in.GetAckTimeout() != nil
	case "attempt_timeout":
		return in.GetAttemptTimeout() != nil
	case "deliver_late":
		return in.GetDeliverLate()
	case "api_key":
		return in.GetApiKey() != ""
	case "model":
		return in.GetModel() != ""
	case "instructions":
		return in.GetInstructions() != ""
	case "history":
		return in.GetHistory() != 0
	}
	return false
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
	return s.backend(scope, b), nil
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
	made, value, err := s.App.RotateSecret(ctx, scope, app.Backend, kind, req.GetOverlap().AsDuration())
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
	got, err := s.App.Secrets(ctx, scope, app.Backend)
	if err != nil {
		return nil, err
	}
	return &adminv1.ListBackendSecretsResponse{Secrets: secrets(scope, got)}, nil
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

var kinds = map[adminv1.BackendKind]string{
	adminv1.BackendKind_BACKEND_KIND_UNSPECIFIED: app.KindWebhook,
	adminv1.BackendKind_BACKEND_KIND_WEBHOOK:     app.KindWebhook,
	adminv1.BackendKind_BACKEND_KIND_OPENAI_CHAT: app.KindOpenAIChat,
	adminv1.BackendKind_BACKEND_KIND_A2A:         app.KindA2A,
	adminv1.BackendKind_BACKEND_KIND_STREAM:      app.KindStream,
}

func kindOf(kind string) adminv1.BackendKind {
	switch kind {
	case app.KindOpenAIChat:
		return adminv1.BackendKind_BACKEND_KIND_OPENAI_CHAT
	case app.KindA2A:
		return adminv1.BackendKind_BACKEND_KIND_A2A
	case app.KindStream:
		return adminv1.BackendKind_BACKEND_KIND_STREAM
	default:
		return adminv1.BackendKind_BACKEND_KIND_WEBHOOK
	}
}

func (s *Backends) backend(scope tenancy.Scope, b app.Endpoint) *adminv1.Backend {
	state := stateOf(b)
	if !b.IsSet() {
		state = adminv1.BackendState_BACKEND_STATE_NOT_SET
	}
	return &adminv1.Backend{
		Name: scope.Name() + "/backend", Kind: kindOf(b.Kind), Url: b.URL, State: state, DisableReason: b.DisableReason,
		AckTimeout: lasting(b.Ack()), AttemptTimeout: lasting(b.Whole()), DeliverLate: b.DeliverLate, Policy: policy(b), HasApiKey: b.HasAPIKey,
		Model: b.Model, Instructions: b.Instructions, History: int32(b.History), Health: health(s.App.Health(b)),
		CreateTime: stamp(b.CreatedAt), UpdateTime: stamp(b.UpdatedAt), Etag: resource.ETag(b.Version),
	}
}

func stateOf(e app.Endpoint) adminv1.BackendState {
	if e.Enabled {
		return adminv1.BackendState_BACKEND_STATE_ENABLED
	}
	return adminv1.BackendState_BACKEND_STATE_DISABLED
}

func secrets(scope tenancy.Scope, all []app.Secret) []*adminv1.BackendSecret {
	out := make([]*adminv1.BackendSecret, len(all))
	for i, one := range all {
		out[i] = secret(scope, one)
	}
	return out
}

func secret(scope tenancy.Scope, s app.Secret) *adminv1.BackendSecret {
	kind := adminv1.SecretKind_SECRET_KIND_HMAC
	if s.Kind == app.Ed25519 {
		kind = adminv1.SecretKind_SECRET_KIND_ED25519
	}
	return &adminv1.BackendSecret{
		Name: scope.Name() + "/" + s.Name(), Kind: kind, PublicKey: s.PublicKey, Prefix: s.Prefix,
		CreateTime: stamp(s.CreatedAt), ExpireTime: maybe(s.ExpiresAt),
	}
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func maybe(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return stamp(*t)
}
