package rpc

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/relay/app"
)

// SignIns implements relayv1.SignInServiceServer.
type SignIns struct {
	relayv1.UnimplementedSignInServiceServer
	App *app.App
}

// SendRequest implements the service.
func (s *SignIns) SendRequest(ctx context.Context, req *relayv1.SendRequestRequest) (*relayv1.SendRequestResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	res, err := s.App.Send(ctx, scope, app.Request{
		Method: req.GetMethod(), URL: req.GetUrl(), Headers: req.GetHeaders(), Body: req.GetBody(), Timeout: req.GetTimeout().AsDuration(),
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var failed *egress.Error
	if errors.As(err, &failed) {
		return &relayv1.SendRequestResponse{Failure: string(failed.Kind), Detail: failed.Detail}, nil
	}
	if err != nil {
		return nil, err
	}
	out := &relayv1.SendRequestResponse{Status: int32(res.Status), ContentType: res.ContentType, Body: res.Body, Headers: map[string]string{}}
	for _, name := range []string{"Cache-Control", "Expires", "Age", "Date"} {
		if v := res.Header.Get(name); v != "" {
			out.Headers[name] = v
		}
	}
	return out, nil
}

// CheckCredentials implements the service.
func (s *SignIns) CheckCredentials(ctx context.Context, req *relayv1.CheckCredentialsRequest) (*relayv1.CheckCredentialsResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	subject := req.GetSubject()
	check := app.Check{URL: req.GetUrl(), ID: req.GetId(), Subject: webhook.SignInSubject{
		SignInID: subject.GetSignInId(), Type: subject.GetSignIn(), Scopes: subject.GetScopes(),
		Agent:  webhook.DeliveryAgent{ClientID: subject.GetClientId(), Name: subject.GetAgentName()},
		UserID: subject.GetUserId(), SessionID: subject.GetSessionId(),
	}}
	switch what := req.GetWhat().(type) {
	case *relayv1.CheckCredentialsRequest_Credentials:
		check.Credentials = what.Credentials.GetFields()
		if check.Credentials == nil {
			check.Credentials = map[string]string{}
		}
	case *relayv1.CheckCredentialsRequest_Code:
		check.Code, check.State = what.Code.GetCode(), what.Code.GetState()
	default:
		return nil, problem.New(problem.Invalid, problem.InvalidRequest, "", "neither credentials nor a code to check")
	}
	got, err := s.App.CheckCredentials(ctx, scope, check)
	if err != nil {
		return nil, err
	}
	return checked(got), nil
}

func checked(c app.Checked) *relayv1.CheckCredentialsResponse {
	a := c.Answer
	out := &relayv1.CheckCredentialsResponse{Account: a.Account, AccountLabel: a.AccountLabel, SentTo: a.SentTo, State: a.State, Reason: c.Reason}
	if a.Lifetime > 0 {
		out.ExpiresIn = durationpb.New(a.Lifetime)
	}
	switch a.Result {
	case webhook.SignInComplete:
		out.Outcome = relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_COMPLETE
	case webhook.SignInCodeRequired:
		out.Outcome = relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_CODE_REQUIRED
	case webhook.SignInFailed:
		out.Outcome = relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_FAILED
	default:
		out.Outcome = relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_UNAVAILABLE
	}
	return out
}
