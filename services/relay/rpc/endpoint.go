package rpc

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/relay/app"
	"github.com/poppyfield/poppyfield/services/relay/events"
)

// Endpoints implements adminv1.WebhookEndpointServiceServer.
type Endpoints struct {
	adminv1.UnimplementedWebhookEndpointServiceServer
	App *app.App
	Now clock.Clock
}

const endpointsKind = "endpoints"

// GetWebhookEndpoint implements the service.
func (s *Endpoints) GetWebhookEndpoint(ctx context.Context, req *adminv1.GetWebhookEndpointRequest) (*adminv1.WebhookEndpoint, error) {
	scope, id, err := endpointOf(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	e, err := s.App.Listener(ctx, scope, id)
	if err != nil {
		return nil, err
	}
	return s.endpoint(ctx, scope, e)
}

// ListWebhookEndpoints implements the service.
func (s *Endpoints) ListWebhookEndpoints(ctx context.Context, req *adminv1.ListWebhookEndpointsRequest) (*adminv1.ListWebhookEndpointsResponse, error) {
	scope, err := companyOf(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	now := s.Now()
	at, id, err := place(now, req.GetPageToken(), endpointsKind, req.GetParent())
	if err != nil {
		return nil, err
	}
	size := resource.Size(req.GetPageSize())
	got, err := s.App.Listeners(ctx, scope, at, id, size+1)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListWebhookEndpointsResponse{}
	if len(got) > size {
		got = got[:size]
		out.NextPageToken = placeToken(now, got[size-1].CreatedAt, got[size-1].ID, endpointsKind, req.GetParent())
	}
	for _, e := range got {
		one, err := s.endpoint(ctx, scope, e)
		if err != nil {
			return nil, err
		}
		out.Endpoints = append(out.Endpoints, one)
	}
	return out, nil
}

// CreateWebhookEndpoint implements the service.
func (s *Endpoints) CreateWebhookEndpoint(ctx context.Context, req *adminv1.CreateWebhookEndpointRequest) (*adminv1.CreateWebhookEndpointResponse, error) {
	scope, err := companyOf(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	in := req.GetEndpoint()
	ch := listenerChange(in, func(string) bool { return true })
	ch.ValidateOnly = req.GetValidateOnly()
	e, made, value, err := s.App.CreateListener(ctx, scope, ch)
	if err != nil {
		return nil, err
	}
	out := &adminv1.CreateWebhookEndpointResponse{}
	if out.Endpoint, err = s.endpoint(ctx, scope, e); err != nil {
		return nil, err
	}
	if value != "" {
		out.Secret = secret(scope, made)
		out.Secret.Secret = value
	}
	return out, nil
}

// UpdateWebhookEndpoint implements the service.
func (s *Endpoints) UpdateWebhookEndpoint(ctx context.Context, req *adminv1.UpdateWebhookEndpointRequest) (*adminv1.WebhookEndpoint, error) {
	in := req.GetEndpoint()
	scope, id, err := endpointOf(ctx, in.GetName())
	if err != nil {
		return nil, err
	}
	has, err := resource.Mask(req.GetUpdateMask(), append([]string{"display_name", "url", "event_types"}, policyFields...), func(f string) bool {
		return f == "display_name" && in.GetDisplayName() != "" || f == "url" && in.GetUrl() != "" || f == "event_types" && len(in.GetEventTypes()) > 0 ||
			policyHas(in.GetPolicy(), f)
	})
	if err != nil {
		return nil, err
	}
	ch := listenerChange(in, has)
	ch.ETag, ch.ValidateOnly = in.GetEtag(), req.GetValidateOnly()
	e, err := s.App.UpdateListener(ctx, scope, id, ch)
	if err != nil {
		return nil, err
	}
	return s.endpoint(ctx, scope, e)
}

func listenerChange(in *adminv1.WebhookEndpoint, has func(string) bool) app.ListenerChange {
	ch := app.ListenerChange{Policy: policyChange(in.GetPolicy(), has)}
	if has("display_name") {
		ch.DisplayName = &in.DisplayName
	}
	if has("url") {
		ch.URL = &in.Url
	}
	if has("event_types") {
		ch.EventTypes = &in.EventTypes
	}
	return ch
}

// DeleteWebhookEndpoint implements the service.
func (s *Endpoints) DeleteWebhookEndpoint(ctx context.Context, req *adminv1.DeleteWebhookEndpointRequest) (*adminv1.DeleteWebhookEndpointResponse, error) {
	scope, id, err := endpointOf(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	if err := s.App.DeleteListener(ctx, scope, id, req.GetEtag()); err != nil {
		return nil, err
	}
	return &adminv1.DeleteWebhookEndpointResponse{}, nil
}

// EnableWebhookEndpoint implements the service.
func (s *Endpoints) EnableWebhookEndpoint(ctx context.Context, req *adminv1.EnableWebhookEndpointRequest) (*adminv1.WebhookEndpoint, error) {
	scope, id, err := endpointOf(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	e, err := s.App.EnableListener(ctx, scope, id)
	if err != nil {
		return nil, err
	}
	return s.endpoint(ctx, scope, e)
}

// DisableWebhookEndpoint implements the service.
func (s *Endpoints) DisableWebhookEndpoint(ctx context.Context, req *adminv1.DisableWebhookEndpointRequest) (*adminv1.WebhookEndpoint, error) {
	scope, id, err := endpointOf(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	e, err := s.App.DisableListener(ctx, scope, id, req.GetReason())
	if err != nil {
		return nil, err
	}
	return s.endpoint(ctx, scope, e)
}

// TestWebhookEndpoint implements the service.
func (s *Endpoints) TestWebhookEndpoint(ctx context.Context, req *adminv1.TestWebhookEndpointRequest) (*adminv1.TestWebhookEndpointResponse, error) {
	scope, id, err := endpointOf(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	got, err := s.App.TestListener(ctx, scope, id, req.GetEventType())
	if err != nil {
		return nil, err
	}
	return &adminv1.TestWebhookEndpointResponse{Attempt: loggedAttempt(scope, got)}, nil
}

// RotateWebhookEndpointSecret implements the service.
func (s *Endpoints) RotateWebhookEndpointSecret(ctx context.Context, req *adminv1.RotateWebhookEndpointSecretRequest) (*adminv1.BackendSecret, error) {
	scope, id, err := endpointOf(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	made, value, err := s.App.RotateSecret(ctx, scope, id, app.HMAC, req.GetOverlap().AsDuration())
	if err != nil {
		return nil, err
	}
	out := secret(scope, made)
	out.Secret = value
	return out, nil
}

// ListWebhookEndpointSecrets implements the service.
func (s *Endpoints) ListWebhookEndpointSecrets(ctx context.Context, req *adminv1.ListWebhookEndpointSecretsRequest) (*adminv1.ListWebhookEndpointSecretsResponse, error) {
	scope, id, err := endpointOf(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	got, err := s.App.Secrets(ctx, scope, id)
	if err != nil {
		return nil, err
	}
	return &adminv1.ListWebhookEndpointSecretsResponse{Secrets: secrets(scope, got)}, nil
}

// ListEventTypes implements the service.
func (s *Endpoints) ListEventTypes(ctx context.Context, req *adminv1.ListEventTypesRequest) (*adminv1.ListEventTypesResponse, error) {
	if _, err := companyOf(ctx, req.GetParent()); err != nil {
		return nil, err
	}
	out := &adminv1.ListEventTypesResponse{}
	for _, name := range events.Types() {
		schema, err := events.Schema(name)
		if err != nil {
			return nil, err
		}
		example, err := events.Example(name, s.Now())
		if err != nil {
			return nil, err
		}
		one := &adminv1.EventType{Type: name, Description: events.Describe(name)}
		if one.Schema, err = asStruct(schema); err != nil {
			return nil, err
		}
		if one.Example, err = asStruct(example); err != nil {
			return nil, err
		}
		out.EventTypes = append(out.EventTypes, one)
	}
	return out, nil
}

func asStruct(raw []byte) (*structpb.Struct, error) {
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	return structpb.NewStruct(m)
}

func (s *Endpoints) endpoint(ctx context.Context, scope tenancy.Scope, e app.Endpoint) (*adminv1.WebhookEndpoint, error) {
	out := &adminv1.WebhookEndpoint{
		DisplayName: e.DisplayName, Url: e.URL, EventTypes: e.EventTypes, State: stateOf(e), DisableReason: e.DisableReason, Policy: policy(e),
		CreateTime: stamp(e.CreatedAt), UpdateTime: stamp(e.UpdatedAt), Etag: resource.ETag(e.Version),
	}
	if e.ID == "" { // as it would be
		out.Health = health(s.App.Health(e))
		return out, nil
	}
	out.Name = scope.Name() + "/" + e.Name()
	h, err := s.App.ListenerHealth(ctx, scope, e)
	out.Health = health(h)
	return out, err
}

// endpointOf returns the call's scope and the id of its endpoint that name names.
func endpointOf(ctx context.Context, name string) (tenancy.Scope, string, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return tenancy.Scope{}, "", err
	}
	id, err := resource.ChildID(scope, name, endpointsKind)
	return scope, id, err
}

// companyOf returns the call's scope once name is found to be its Company.
func companyOf(ctx context.Context, name string) (tenancy.Scope, error) {
	scope, err := tenancy.From(ctx)
	if err == nil && name != scope.Name() {
		err = resource.NotFound()
	}
	return scope, err
}

// place returns the time and id at which a page token ends.
func place(now time.Time, token string, bound ...string) (time.Time, string, error) {
	after, err := resource.After(now, token, 2, bound...)
	if err != nil || after == nil {
		return time.Time{}, "", err
	}
	at, err := time.Parse(time.RFC3339Nano, after[0])
	if err != nil {
		return time.Time{}, "", resource.Invalid("page_token", "not a page token of this list")
	}
	return at, after[1], nil
}

func placeToken(now, at time.Time, id string, bound ...string) string {
	return resource.Token(now, []string{at.Format(time.RFC3339Nano), id}, bound...)
}
