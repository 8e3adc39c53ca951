package agent

import (
	"context"
	"net/http"
	"regexp"
)

// Headers returns the header fields of one request to an API of the Company (Poppy 4.3,
// 6): the Session Token and a DPoP Proof, which is good for that request alone. The
// Session is started, or renewed, where that is needed.
func (a *Agent) Headers(ctx context.Context, domain, method, address string, opts SessionOptions) (http.Header, error) {
	if !regexp.MustCompile(`^[A-Z]{1,20}$`).MatchString(method) {
		return nil, fail(ExitUsage, "4.3", "%q: a method in capitals is wanted", method)
	}
	if _, err := httpsURL(address); err != nil {
		return nil, fail(ExitUsage, "6", "the API's address").because(err)
	}
	c, err := a.Discover(ctx, domain)
	if err != nil {
		return nil, err
	}
	v, err := a.visit(ctx, c, opts)
	if err != nil {
		return nil, err
	}
	token := v.rel.Session.Token
	proof, err := v.proof(&outgoing{method: method, url: address}, token)
	if err != nil {
		return nil, err
	}
	return http.Header{"Authorization": {"DPoP " + token}, "Dpop": {proof}}, nil
}
