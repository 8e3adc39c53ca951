package poppy

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
	// tooLate is when a stream is given up: nothing comes, or it comes late, or one of the clocks was set.
	tooLate = 5 * time.Second
)

var errLate = errors.New("poppy: the watch of Sessions lags behind")

// watch keeps what is known true until ctx ends.
func (v *Verifier) watch(ctx context.Context) {
	pause := firstPause
	for {
		synced, err := v.follow(ctx)
		v.known.lose()
		if ctx.Err() != nil {
			return
		}
		if synced {
			pause = firstPause
		}
		v.cfg.Log.WarnContext(ctx, "not watching sessions: every request is asked about", "error", err)
		if clock.Wait(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// follow reads one stream to its end. synced tells whether it began.
func (v *Verifier) follow(ctx context.Context) (synced bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := v.api.WatchSessions(ctx, &adminv1.WatchSessionsRequest{Parent: v.cfg.Company})
	if err != nil {
		return false, err
	}
	silence := time.AfterFunc(tooLate, cancel) // a connection that is gone may say nothing at all
	defer silence.Stop()
	var arrivals delay
	for {
		frame, err := stream.Recv()
		if err != nil {
			return synced, err
		}
		silence.Reset(tooLate)
		now := v.cfg.Now()
		switch f := frame.GetFrame().(type) {
		case *adminv1.WatchSessionsResponse_Synced:
			v.known.lose()
			synced = true
			v.known.check(now.Add(-arrivals.of(f.Synced.AsTime(), now)))
		case *adminv1.WatchSessionsResponse_Session:
			v.known.forget(f.Session)
		case *adminv1.WatchSessionsResponse_All:
			v.known.forgetAll()
		case *adminv1.WatchSessionsResponse_Heartbeat:
			late := arrivals.of(f.Heartbeat.AsTime(), now)
			if late > tooLate {
				return synced, errLate
			}
			if synced {
				v.known.check(now.Add(-late))
			}
		}
	}
}

// delay says how much later than others a frame of a stream came: the two clocks need
// not agree for that.
type delay struct {
	least time.Duration
	known bool
}

func (d *delay) of(sent, received time.Time) time.Duration {
	took := received.Sub(sent)
	if !d.known || took < d.least {
		d.least, d.known = took, true
	}
	return took - d.least
}
