package rpc

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/sessions/app"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

const (
	admissionName = "/admission"
	rulesPrefix   = "admissionRules/"
)

type admissionServer struct {
	adminv1.UnimplementedAdmissionServiceServer
	app *app.App
}

// GetAdmission implements adminv1.AdmissionServiceServer.
func (s *admissionServer) GetAdmission(ctx context.Context, r *adminv1.GetAdmissionRequest) (*adminv1.Admission, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	if r.GetName() != scope.Name()+admissionName {
		return nil, notFound()
	}
	a, err := s.app.Admission(ctx, scope)
	if err != nil {
		return nil, err
	}
	return admissionOf(scope, a), nil
}

// UpdateAdmission implements adminv1.AdmissionServiceServer.
func (s *admissionServer) UpdateAdmission(ctx context.Context, r *adminv1.UpdateAdmissionRequest) (*adminv1.Admission, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	in := r.GetAdmission()
	if in.GetName() != scope.Name()+admissionName {
		return nil, notFound()
	}
	a, err := s.app.Admission(ctx, scope)
	if err != nil {
		return nil, err
	}
	if in.GetEtag() != "" && in.GetEtag() != etag(a) {
		return nil, app.Stale()
	}
	if err := change(&a, in, r.GetUpdateMask().GetPaths()); err != nil {
		return nil, err
	}
	saved, err := s.app.SaveAdmission(ctx, scope, a)
	if err != nil {
		return nil, err
	}
	return admissionOf(scope, saved), nil
}

// change brings the fields that paths name from in to a; without paths those that are set.
func change(a *store.Admission, in *adminv1.Admission, paths []string) error {
	if len(paths) == 0 {
		if in.GetMode() != adminv1.AdmissionMode_ADMISSION_MODE_UNSPECIFIED {
			paths = append(paths, "mode")
		}
		if in.GetRequireDpopNonce() {
			paths = append(paths, "require_dpop_nonce")
		}
	}
	for _, path := range paths {
		switch path {
		case "mode":
			mode, ok := modes[in.GetMode()]
			if !ok {
				return badField("admission.mode", "has to be one of the modes")
			}
			a.Mode = mode
		case "require_dpop_nonce":
			a.RequireNonce = in.GetRequireDpopNonce()
		case "*":
			return change(a, in, []string{"mode", "require_dpop_nonce"})
		case "name", "etag", "update_time": // a JSON gateway names every member of the body; these can't change
		default:
			return badField("update_mask", "has a path that Admission doesn't have: "+strconv.Quote(path))
		}
	}
	return nil
}

// ListAdmissionRules implements adminv1.AdmissionServiceServer.
func (s *admissionServer) ListAdmissionRules(ctx context.Context, r *adminv1.ListAdmissionRulesRequest) (*adminv1.ListAdmissionRulesResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkParent(scope, r.GetParent()); err != nil {
		return nil, err
	}
	place, err := resource.After(s.app.Now(), r.GetPageToken(), 1, "rules", r.GetParent())
	if err != nil {
		return nil, err
	}
	after := ""
	if place != nil {
		after = place[0]
	}
	size := resource.Size(r.GetPageSize())
	list, err := s.app.Rules(ctx, scope, after, size+1)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListAdmissionRulesResponse{}
	if len(list) > size {
		list = list[:size]
		out.NextPageToken = resource.Token(s.app.Now(), []string{list[size-1].ID}, "rules", r.GetParent())
	}
	for _, found := range list {
		out.AdmissionRules = append(out.AdmissionRules, ruleOf(scope, found))
	}
	return out, nil
}

// CreateAdmissionRule implements adminv1.AdmissionServiceServer.
func (s *admissionServer) CreateAdmissionRule(ctx context.Context, r *adminv1.CreateAdmissionRuleRequest) (*adminv1.AdmissionRule, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkParent(scope, r.GetParent()); err != nil {
		return nil, err
	}
	in := r.GetAdmissionRule()
	effect, ok := effects[in.GetEffect()]
	if !ok {
		return nil, badField("admission_rule.effect", "has to be one of the effects")
	}
	rule := store.Rule{ClientID: in.GetClientId(), Effect: effect, Reason: in.GetReason()}
	if t := in.GetExpireTime(); t != nil {
		rule.ExpiresAt = t.AsTime().Truncate(time.Microsecond)
	}
	saved, err := s.app.PutRule(ctx, scope, rule)
	if err != nil {
		return nil, err
	}
	return ruleOf(scope, saved), nil
}

// DeleteAdmissionRule implements adminv1.AdmissionServiceServer.
func (s *admissionServer) DeleteAdmissionRule(ctx context.Context, r *adminv1.DeleteAdmissionRuleRequest) (*emptypb.Empty, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	id, err := below(scope, r.GetName(), rulesPrefix)
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, s.app.DeleteRule(ctx, scope, id)
}

var (
	modes = map[adminv1.AdmissionMode]store.Mode{
		adminv1.AdmissionMode_ADMISSION_MODE_OPEN:                  store.ModeOpen,
		adminv1.AdmissionMode_ADMISSION_MODE_ALLOWLIST:             store.ModeAllowlist,
		adminv1.AdmissionMode_ADMISSION_MODE_BLOCKLIST:             store.ModeBlocklist,
		adminv1.AdmissionMode_ADMISSION_MODE_REGISTRATION_REQUIRED: store.ModeRegistration,
	}
	effects = map[adminv1.AdmissionEffect]store.Effect{
		adminv1.AdmissionEffect_ADMISSION_EFFECT_ALLOW:    store.EffectAllow,
		adminv1.AdmissionEffect_ADMISSION_EFFECT_BLOCK:    store.EffectBlock,
		adminv1.AdmissionEffect_ADMISSION_EFFECT_REGISTER: store.EffectRegister,
	}
)

func admissionOf(scope tenancy.Scope, a store.Admission) *adminv1.Admission {
	out := &adminv1.Admission{Name: scope.Name() + admissionName, RequireDpopNonce: a.RequireNonce, UpdateTime: timeOf(a.UpdatedAt), Etag: etag(a)}
	for wire, mode := range modes {
		if mode == a.Mode {
			out.Mode = wire
		}
	}
	return out
}

func ruleOf(scope tenancy.Scope, r store.Rule) *adminv1.AdmissionRule {
	out := &adminv1.AdmissionRule{
		Name: scope.Name() + "/" + rulesPrefix + r.ID, ClientId: r.ClientID, Reason: r.Reason,
		ExpireTime: timeOf(r.ExpiresAt), CreateTime: timeOf(r.CreatedAt),
	}
	for wire, effect := range effects {
		if effect == r.Effect {
			out.Effect = wire
		}
	}
	return out
}

func etag(a store.Admission) string { return strconv.Quote(strconv.FormatInt(a.Version, 10)) }

func badField(path, detail string) error {
	return problem.New(problem.Invalid, problem.InvalidRequest, "", "%s %s", path, detail).WithField(path, detail)
}
