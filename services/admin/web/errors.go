package web

import (
	"context"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// failed answers the error of a call as a problem document.
func (h *Handler) failed(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	w.Header().Del("Trailer")
	w.Header().Del("Transfer-Encoding")
	httpx.WriteProblem(w, r, toProblem(err))
}

// toProblem reads the problem out of a status. A status without one was made on the
// way, in words of libraries, which go no further.
func toProblem(err error) error {
	st := status.Convert(err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == rpc.Domain {
			return rpc.FromStatus(err)
		}
	}
	switch st.Code() {
	case codes.InvalidArgument:
		return problem.New(problem.Invalid, problem.InvalidRequest, "", "the request can't be read").WithCause(err)
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted:
		return problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the service is briefly unavailable").WithCause(err)
	default:
		return problem.New(problem.Internal, problem.ServerError, "", "internal error").WithCause(err)
	}
}
