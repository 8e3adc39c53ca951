// Package relay is the one service that reaches the Internet, and only through the
// guarded client: it fetches agents' documents, looks at Companies' domains, delivers
// webhooks, and takes sign-ins to Companies' own systems. It holds the webhook secrets,
// no conversation and no credentials.
package relay

import (
	"errors"

	"google.golang.org/grpc"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/relay/app"
	"github.com/poppyfield/poppyfield/services/relay/rpc"
	"github.com/poppyfield/poppyfield/services/relay/store"
)

// Deps of the service. Bus may be nil: then what waits for a backend that is on again
// goes out at its own time.
type Deps struct {
	DB     *db.DB
	Bus    *bus.Bus
	Egress *egress.Client
	Keys   *keys.Ring
	Now    clock.Clock
}

// Service is relay.
type Service struct {
	app    *app.App
	egress *egress.Client
}

// New makes the service.
func New(deps Deps) *Service {
	check := func(url string) error {
		if _, err := deps.Egress.Guard().CheckURL(url); err != nil {
			return errors.New(egress.DetailOf(err))
		}
		return nil
	}
	var bell app.Bell
	if deps.Bus != nil {
		bell = deps.Bus
	}
	return &Service{app: app.New(store.New(deps.DB, deps.Now), deps.Egress, check, deps.Keys, bell, deps.Now), egress: deps.Egress}
}

// Register adds the gRPC services that relay owns.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	adminv1.RegisterBackendServiceServer(r, &rpc.Backends{App: s.app})
	relayv1.RegisterDeliveryServiceServer(r, &rpc.Deliveries{App: s.app})
	relayv1.RegisterEgressServiceServer(r, &rpc.Egress{Client: s.egress})
	relayv1.RegisterSignInServiceServer(r, &rpc.SignIns{App: s.app})
}
