package gateway

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/refusal"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin/app"
	"github.com/poppyfield/poppyfield/services/admin/gate"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

var errOtherMethod = errors.New("the method isn't VerifyRequest")

// Ask has o judged by m, VerifyRequest, for the Company that parent tells. A request that
// can't be judged is a refused one: its sender chose what it looks like. Any error is the
// gateway's or ours, as a gRPC status, and the request must not pass.
func Ask(ctx context.Context, g *gate.Gate, m *method.Method, parent func(*app.Key) (string, error), o Original) (*adminv1.VerifyRequestResponse, error) {
	judging := false
	out, err := g.HandleFor(ctx, m, func(k *app.Key, into proto.Message) error {
		q, ok := into.(*adminv1.VerifyRequestRequest)
		if !ok {
			return errOtherMethod
		}
		var err error
		if q.Parent, err = parent(k); err != nil {
			return err
		}
		judging = true
		return o.Fill(q)
	})
	if err != nil {
		if p := problem.As(rpc.FromStatus(err)); judging && p.Kind == problem.Invalid {
			return unreadable(p), nil
		}
		return nil, err
	}
	verdict, ok := out.(*adminv1.VerifyRequestResponse)
	if !ok {
		return nil, errOtherMethod
	}
	return verdict, nil
}

func unreadable(p *problem.Error) *adminv1.VerifyRequestResponse {
	answer := refusal.OAuth(p, refusal.Resource, "")
	out := &adminv1.VerifyRequestResponse{Status: int32(answer.Status), Body: string(answer.Body), Reason: p.Reason.Wire()}
	for name := range answer.Header {
		out.Headers = append(out.Headers, &adminv1.HeaderField{Name: name, Value: answer.Header.Get(name)})
	}
	return out
}
