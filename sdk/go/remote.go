package poppy

import (
	"context"
	"net/http"

	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

// remote has the request judged by VerifyRequest.
func (v *Verifier) remote(ctx context.Context, r Request) (*Decision, error) {
	q := &adminv1.VerifyRequestRequest{Parent: v.cfg.Company, Method: r.Method, Url: r.URL}
	for _, value := range r.Authorization {
		q.Headers = append(q.Headers, &adminv1.HeaderField{Name: "Authorization", Value: value})
	}
	for _, value := range r.DPoP {
		q.Headers = append(q.Headers, &adminv1.HeaderField{Name: "DPoP", Value: value})
	}
	got, err := v.api.VerifyRequest(ctx, q)
	if err != nil {
		return nil, err
	}
	d := &Decision{
		Allowed: got.GetAllowed(), Session: sessionOf(got.GetSession()), Status: int(got.GetStatus()), Reason: got.GetReason(), Header: http.Header{},
		API: got.GetApi(),
	}
	if body := got.GetBody(); body != "" {
		d.Body = []byte(body)
	}
	for _, h := range got.GetHeaders() {
		d.Header.Add(h.GetName(), h.GetValue())
	}
	return d, nil
}
