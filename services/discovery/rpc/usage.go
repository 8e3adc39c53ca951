package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// Usage implements adminv1.UsageServiceServer.
type Usage struct {
	adminv1.UnimplementedUsageServiceServer
	App *app.App
	Now clock.Clock
}

// ListUsage implements the service.
func (s *Usage) ListUsage(ctx context.Context, req *adminv1.ListUsageRequest) (*adminv1.ListUsageResponse, error) {
	scope, err := scopeOf(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	list := []string{"usage", scope.Name(), req.GetStart(), req.GetEnd()}
	key, err := resource.After(s.Now(), req.GetPageToken(), 1, list...)
	if err != nil {
		return nil, err
	}
	after := ""
	if key != nil {
		after = key[0]
	}
	n := resource.Size(req.GetPageSize())
	got, err := s.App.ListUsage(ctx, scope, req.GetStart(), req.GetEnd(), after, n+1)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListUsageResponse{}
	if len(got) > n {
		got = got[:n]
		out.NextPageToken = resource.Token(s.Now(), []string{got[n-1].Day}, list...)
	}
	for _, d := range got {
		out.Days = append(out.Days, &adminv1.DayUsage{
			Day: d.Day, Sessions: d.Counts[usage.Sessions], MessagesFromAgents: d.Counts[usage.MessagesFromAgents], MessagesToAgents: d.Counts[usage.MessagesToAgents],
			Deliveries: d.Counts[usage.Deliveries], Verifications: d.Counts[usage.Verifications],
		})
	}
	return out, nil
}

// GetQuotas implements the service.
func (s *Usage) GetQuotas(ctx context.Context, req *adminv1.GetQuotasRequest) (*adminv1.Quotas, error) {
	scope, err := scopeOf(ctx, req.GetName(), "quotas")
	if err != nil {
		return nil, err
	}
	got, err := s.App.Quotas(ctx, scope)
	if err != nil {
		return nil, err
	}
	return quotas(scope, got), nil
}

// UpdateQuotas implements the service.
func (s *Usage) UpdateQuotas(ctx context.Context, req *adminv1.UpdateQuotasRequest) (*adminv1.Quotas, error) {
	in := req.GetQuotas()
	scope, err := scopeOf(ctx, in.GetName(), "quotas")
	if err != nil {
		return nil, err
	}
	given := []struct {
		field string
		quota *adminv1.Quota
		of    usage.Quota
	}{
		{"sessions", in.GetSessions(), usage.SessionQuota},
		{"messages", in.GetMessages(), usage.MessageQuota},
		{"deliveries", in.GetDeliveries(), usage.DeliveryQuota},
		{"verifications", in.GetVerifications(), usage.VerificationQuota},
	}
	fields, set := make([]string, len(given)), map[string]bool{}
	for i, g := range given {
		fields[i], set[g.field] = g.field, g.quota != nil
	}
	has, err := resource.Mask(req.GetUpdateMask(), fields, func(f string) bool { return set[f] })
	if err != nil {
		return nil, err
	}
	got, err := s.App.UpdateQuotas(ctx, scope, in.GetEtag(), func(to *usage.Amounts) {
		for _, g := range given {
			if has(g.field) {
				to[g.of] = g.quota.GetLimit()
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return quotas(scope, got), nil
}

func quotas(scope tenancy.Scope, q app.Quotas) *adminv1.Quotas {
	one := func(of usage.Quota) *adminv1.Quota { return &adminv1.Quota{Limit: q.Most[of], Used: q.Used[of]} }
	out := &adminv1.Quotas{
		Name: scope.Name() + "/quotas", Sessions: one(usage.SessionQuota), Messages: one(usage.MessageQuota), Deliveries: one(usage.DeliveryQuota),
		Verifications: one(usage.VerificationQuota), ResetTime: timestamppb.New(q.ResetsAt), Etag: resource.ETag(q.Version),
	}
	if !q.UpdatedAt.IsZero() {
		out.UpdateTime = timestamppb.New(q.UpdatedAt)
	}
	return out
}
