package signin

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// UserCodesLimited is the rule that guessing user codes is made slow.
const UserCodesLimited = "RFC8628/5.1"

// What may be tried how often. The second is for guesses from many addresses.
const (
	codesPerAddress = 10
	codesPerCompany = 600
	codeWindow      = 10 * time.Minute
)

// StartDevice begins the sign-in of the Device Sign-In that waits for the user code, and
// returns it with the secret of the browser's cookie. An unknown code is NOT_FOUND; it
// counts for address, as every try does until it is right.
func (a *App) StartDevice(ctx context.Context, company *directory.Company, userCode, address, locale string) (store.SignIn, string, error) {
	ctx = tenancy.Into(ctx, company.Scope)
	if !company.SignIn.Offers(directory.Device) {
		return store.SignIn{}, "", notOffered()
	}
	limits := []store.Key{
		{Kind: "user code by address", Value: address, Limit: codesPerAddress, Window: codeWindow},
		{Kind: "user code", Limit: codesPerCompany, Window: codeWindow},
	}
	wait, err := a.Attempts.Take(ctx, company.Scope, a.Now(), limits...)
	if err != nil {
		return store.SignIn{}, "", err
	}
	if wait > 0 {
		return store.SignIn{}, "", problem.New(problem.RateLimited, problem.RateLimitedReason, UserCodesLimited, "too many user codes were tried").WithRetryAfter(wait)
	}
	device, err := a.Sessions.FindDevice(ctx, &sessionsv1.FindDeviceRequest{UserCode: userCode})
	if err != nil {
		return store.SignIn{}, "", err
	}
	// It was no guess. That it can't be taken back locks nobody out for longer than the window.
	_ = a.Attempts.Return(ctx, company.Scope, a.Now(), limits...)
	found, err := a.agent(ctx, company, device.GetClientId(), "")
	if err != nil {
		return store.SignIn{}, "", err
	}
	return a.start(ctx, company, store.SignIn{
		Kind: directory.Device, ClientID: device.GetClientId(), AgentName: found.Document.Name, AgentLogoURI: found.Document.LogoURI,
		Scope: device.GetScope(), UILocale: locale, DeviceID: device.GetDeviceId(), ExpiresAt: device.GetExpireTime().AsTime(),
	}, noteSeparator+device.GetUserCode())
}
