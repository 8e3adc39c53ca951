package gate

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/poppyfield/poppyfield/internal/platform/rpc"
)

// toStatus is rpc.ToStatus with the request's id in the ErrorInfo.
func toStatus(err error, requestID string) error {
	st := rpc.ToStatus(err).Proto()
	for i, d := range st.GetDetails() {
		info := &errdetails.ErrorInfo{}
		if !d.MessageIs(info) || d.UnmarshalTo(info) != nil {
			continue
		}
		if info.Metadata == nil {
			info.Metadata = map[string]string{}
		}
		info.Metadata["request_id"] = requestID
		if with, err := anypb.New(info); err == nil {
			st.Details[i] = with
		}
	}
	return status.ErrorProto(st)
}
