package app

import (
	"context"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

// Device answers a device authorization request (Poppy 4.6, RFC 8628 section 3.1) at a
// Company that offers Device Sign-In. It takes no proof: the key comes with the polls.
func (a *App) Device(ctx context.Context, company *directory.Company, f oauth.Form) (*sessionsv1.StartDeviceResponse, error) {
	ctx = tenancy.Into(ctx, company.Scope)
	c, err := a.authenticate(ctx, company, f, company.Issuer.DeviceAuthorizationEndpoint())
	if err != nil {
		return nil, err
	}
	scope, err := oauth.CheckRequestedScope(f.Get("scope"), company.SignIn.Scopes(directory.Device))
	if err != nil {
		return nil, err
	}
	return a.SignIns.StartDevice(ctx, &sessionsv1.StartDeviceRequest{
		ClientId: c.id, AgentName: c.agent.Document.Name, Scope: scope.String(), Once: []*sessionsv1.OnceKey{c.once},
	})
}
