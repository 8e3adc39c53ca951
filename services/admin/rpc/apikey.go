package rpc

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin/app"
)

// APIKeys implements adminv1.ApiKeyServiceServer.
type APIKeys struct {
	adminv1.UnimplementedApiKeyServiceServer
	App *app.Manager
	Now clock.Clock
}

// CreateApiKey implements the service.
func (s *APIKeys) CreateApiKey(ctx context.Context, req *adminv1.CreateApiKeyRequest) (*adminv1.ApiKey, error) {
	scope, err := parent(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	in := app.NewKey{DisplayName: req.GetApiKey().GetDisplayName(), Scopes: req.GetApiKey().GetScopes()}
	if t := req.GetApiKey().GetExpireTime(); t != nil {
		if t.CheckValid() != nil {
			return nil, resource.Invalid("api_key.expire_time", "is no time")
		}
		at := t.AsTime().Truncate(time.Microsecond)
		in.ExpiresAt = &at
	}
	k, secret, err := s.App.Create(ctx, scope, app.Caller(ctx), in)
	if err != nil {
		return nil, err
	}
	out := apiKey(k)
	out.Key = secret
	return out, nil
}

// GetApiKey implements the service.
func (s *APIKeys) GetApiKey(ctx context.Context, req *adminv1.GetApiKeyRequest) (*adminv1.ApiKey, error) {
	return s.one(ctx, req.GetName(), s.App.Key)
}

// RevokeApiKey implements the service.
func (s *APIKeys) RevokeApiKey(ctx context.Context, req *adminv1.RevokeApiKeyRequest) (*adminv1.ApiKey, error) {
	return s.one(ctx, req.GetName(), s.App.Revoke)
}

func (s *APIKeys) one(ctx context.Context, name string, do func(context.Context, tenancy.Scope, string) (*app.Key, error)) (*adminv1.ApiKey, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	id, err := resource.ChildID(scope, name, "apiKeys")
	if err != nil {
		return nil, err
	}
	k, err := do(ctx, scope, id)
	if err != nil {
		return nil, err
	}
	return apiKey(k), nil
}

// ListApiKeys implements the service.
func (s *APIKeys) ListApiKeys(ctx context.Context, req *adminv1.ListApiKeysRequest) (*adminv1.ListApiKeysResponse, error) {
	scope, err := parent(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	bound := scope.Name() + "/apiKeys"
	after, err := resource.After(s.Now(), req.GetPageToken(), 2, bound)
	if err != nil {
		return nil, err
	}
	var at time.Time
	id := ""
	if after != nil {
		if at, err = time.Parse(time.RFC3339Nano, after[0]); err != nil {
			return nil, resource.Invalid("page_token", "not a page token of this list")
		}
		id = after[1]
	}
	n := resource.Size(req.GetPageSize())
	got, err := s.App.List(ctx, scope, at, id, n+1)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListApiKeysResponse{}
	if len(got) > n {
		got = got[:n]
		last := got[n-1]
		out.NextPageToken = resource.Token(s.Now(), []string{last.CreatedAt.Format(time.RFC3339Nano), last.ID}, bound)
	}
	for _, k := range got {
		out.ApiKeys = append(out.ApiKeys, apiKey(k))
	}
	return out, nil
}

// GetMe implements the service.
func (s *APIKeys) GetMe(ctx context.Context, _ *adminv1.GetMeRequest) (*adminv1.Me, error) {
	k := app.Caller(ctx)
	if k == nil {
		return nil, problem.New(problem.Internal, problem.ServerError, "", "call without a caller")
	}
	out := &adminv1.Me{Name: k.Name(), Operator: k.Operator(), Permissions: s.App.Permissions(k)}
	if !k.Operator() {
		out.Company = "companies/" + k.CompanyID
	}
	return out, nil
}

func parent(ctx context.Context, name string) (tenancy.Scope, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return tenancy.Scope{}, err
	}
	_, err = resource.Child(scope, name)
	return scope, err
}

func apiKey(k *app.Key) *adminv1.ApiKey {
	return &adminv1.ApiKey{
		Name: k.Name(), DisplayName: k.DisplayName, Scopes: k.Scopes, Prefix: k.Prefix,
		ExpireTime: stamp(k.ExpiresAt), RevokeTime: stamp(k.RevokedAt), LastUsedTime: stamp(k.LastUsedAt), CreateTime: stamp(&k.CreatedAt), Creator: k.Creator,
	}
}

func stamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}
