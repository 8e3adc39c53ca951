package outbox

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// maxRows bounds the parameters of one statement.
const maxRows = 500

// Event is something that happened.
type Event struct {
	Type string // of the catalogue: webhook.EventTypes
	// Subject is the resource that it is about, without the Company: "conversations/cnv_…".
	Subject string
	At      time.Time
	Data    any // of the type that the catalogue has for it
}

// Recorder records events. A nil Recorder records nothing.
type Recorder struct {
	db        *db.DB
	bus       *bus.Bus
	log       *slog.Logger
	listeners *listeners
	leave     func()
	stop      context.CancelFunc
	done      chan struct{}
}

// New makes a Recorder. b may be nil: then nobody is woken, and changes of endpoints are seen within a second.
func New(d *db.DB, b *bus.Bus, now clock.Clock, log *slog.Logger) (*Recorder, error) {
	r := &Recorder{db: d, bus: b, log: log, listeners: newListeners(now)}
	if b == nil {
		return r, nil
	}
	var err error
	r.leave, err = b.Subscribe(bus.AllCompanies, func(_ context.Context, subject string, _ []byte) {
		if tokens := bus.Tokens(subject); len(tokens) == 1 {
			r.listeners.forget(tokens[0])
		}
	})
	return r, err
}

// Start keeps what is known of listeners fresh, so that no request has to look, until Stop.
func (r *Recorder) Start(ctx context.Context) error {
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		tick := time.NewTicker(refreshEvery)
		defer tick.Stop()
		for {
			if err := r.refresh(ctx); err != nil && ctx.Err() == nil {
				r.log.WarnContext(ctx, "listening endpoints not read", "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return nil
}

// Stop ends what Start began.
func (r *Recorder) Stop(context.Context) error {
	if r.stop != nil {
		r.stop()
		<-r.done
	}
	if r.leave != nil {
		r.leave()
	}
	return nil
}

// Quiet reports that nobody at the Company listens, so that nothing needs to be made for Add.
func (r *Recorder) Quiet(scope tenancy.Scope) bool {
	if r == nil {
		return true
	}
	patterns, fresh := r.listeners.of(scope.CompanyID())
	return fresh && len(patterns) == 0
}

// Add records those of the events that some endpoint of the Company wants, in tx, the
// unit of work in which they happen. The doorbell is rung after its commit.
func (r *Recorder) Add(ctx context.Context, tx *ent.Tx, scope tenancy.Scope, events ...Event) error {
	if r == nil || len(events) == 0 {
		return nil
	}
	patterns, fresh := r.listeners.of(scope.CompanyID())
	if !fresh {
		var err error
		if patterns, err = r.load(ctx, tx, scope); err != nil {
			return err
		}
	}
	creates := make([]*ent.CompanyEventCreate, 0, len(events))
	for _, e := range events {
		if !wanted(patterns, e.Type) {
			continue
		}
		body, err := webhook.BuildEvent(e.Type, scope.Name(), e.At, e.Data)
		if err != nil {
			return err
		}
		creates = append(creates, tx.CompanyEvent.Create().SetID(ids.New(ids.Event)).SetType(e.Type).SetSubject(e.Subject).SetBody(body).SetCreatedAt(e.At))
	}
	if len(creates) == 0 {
		return nil
	}
	for some := range slices.Chunk(creates, maxRows) {
		if err := tx.CompanyEvent.CreateBulk(some...).Exec(db.Later(ctx)); err != nil {
			return err
		}
	}
	r.ringAfter(tx, scope)
	return nil
}

// ringAfter wakes the router once tx is committed; one who is woken earlier finds nothing.
func (r *Recorder) ringAfter(tx *ent.Tx, scope tenancy.Scope) {
	if r.bus == nil {
		return
	}
	tx.OnCommit(func(next ent.Committer) ent.Committer {
		return ent.CommitFunc(func(ctx context.Context, tx *ent.Tx) error {
			if err := next.Commit(ctx, tx); err != nil {
				return err
			}
			if subject, err := bus.EventSubject(scope.CompanyID()); err == nil { // a checked id always has one
				r.bus.Publish(ctx, subject, nil)
			}
			return nil
		})
	})
}
