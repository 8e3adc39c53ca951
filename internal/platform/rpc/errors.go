package rpc

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Domain is the domain of every ErrorInfo.
const Domain = "poppyfield"

const (
	metaClause = "clause"
	metaKind   = "kind"
	metaExtra  = "x-"
)

var kindCode = map[problem.Kind]codes.Code{
	problem.Internal:        codes.Internal,
	problem.Invalid:         codes.InvalidArgument,
	problem.Unauthenticated: codes.Unauthenticated,
	problem.Forbidden:       codes.PermissionDenied,
	problem.NotFound:        codes.NotFound,
	problem.Conflict:        codes.FailedPrecondition,
	problem.Gone:            codes.OutOfRange,
	problem.TooLarge:        codes.InvalidArgument,
	problem.RateLimited:     codes.ResourceExhausted,
	problem.Unavailable:     codes.Unavailable,
}

var kindName = map[problem.Kind]string{
	problem.Internal: "internal", problem.Invalid: "invalid", problem.Unauthenticated: "unauthenticated", problem.Forbidden: "forbidden",
	problem.NotFound: "not_found", problem.Conflict: "conflict", problem.Gone: "gone", problem.TooLarge: "too_large",
	problem.RateLimited: "rate_limited", problem.Unavailable: "unavailable",
}

// code is the gRPC code of p: two conflicts have one of their own (AIP-154, AIP-193).
func code(p *problem.Error) codes.Code {
	switch p.Reason {
	case problem.AlreadyExists:
		return codes.AlreadyExists
	case problem.EtagMismatch:
		return codes.Aborted
	}
	return kindCode[p.Kind]
}

// ToStatus is the one mapping from problems to google.rpc.Status. What is no
// problem becomes an internal error without its text.
func ToStatus(err error) *status.Status {
	if err == nil {
		return status.New(codes.OK, "")
	}
	if errors.Is(err, context.Canceled) {
		return status.New(codes.Canceled, "the call was cancelled")
	}
	var p *problem.Error
	known := errors.As(err, &p)
	// A problem that somebody made of a time-out says more than that there was one.
	if errors.Is(err, context.DeadlineExceeded) && (!known || p.Kind == problem.Internal) {
		return status.New(codes.DeadlineExceeded, "the call took too long")
	}
	if ent.IsNotFound(err) {
		err = problem.New(problem.NotFound, problem.NotFoundReason, "", "not found")
	}
	if !errors.As(err, &p) {
		if s, ok := status.FromError(err); ok {
			return s
		}
		p = problem.As(err)
	}
	st := status.New(code(p), p.Detail)
	meta := map[string]string{metaKind: kindName[p.Kind]}
	if p.Clause != "" {
		meta[metaClause] = string(p.Clause)
	}
	for k, v := range p.Extra {
		meta[metaExtra+k] = v
	}
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: string(p.Reason), Domain: Domain, Metadata: meta}}
	if len(p.Fields) > 0 {
		br := &errdetails.BadRequest{}
		for _, f := range p.Fields {
			br.FieldViolations = append(br.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: f.Path, Description: f.Detail})
		}
		details = append(details, br)
	}
	if p.RetryAfter > 0 || p.Kind == problem.RateLimited { // as over HTTP, too often always says when again
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(max(p.RetryAfter, time.Second))})
	}
	with, err := st.WithDetails(details...)
	if err != nil {
		return st
	}
	return with
}

// FromStatus turns a status of one of our services back into the problem it was made from.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	p := &problem.Error{Kind: problem.Internal, Reason: problem.ServerError, Detail: "internal error"}
	known := false
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() != Domain {
				continue
			}
			known = true
			p.Reason, p.Detail = problem.Reason(d.GetReason()), st.Message()
			for k, v := range d.GetMetadata() {
				switch {
				case k == metaClause:
					p.Clause = clause.ID(v)
				case k == metaKind:
					for kind, name := range kindName {
						if name == v {
							p.Kind = kind
						}
					}
				case strings.HasPrefix(k, metaExtra):
					if p.Extra == nil {
						p.Extra = map[string]string{}
					}
					p.Extra[strings.TrimPrefix(k, metaExtra)] = v
				}
			}
		case *errdetails.BadRequest:
			for _, f := range d.GetFieldViolations() {
				p.Fields = append(p.Fields, problem.Field{Path: f.GetField(), Detail: f.GetDescription()})
			}
		case *errdetails.RetryInfo:
			p.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	if known {
		return p
	}
	switch st.Code() {
	case codes.Canceled:
		return context.Canceled
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the service is briefly unavailable").WithCause(err)
	default:
		return p.WithCause(err)
	}
}
