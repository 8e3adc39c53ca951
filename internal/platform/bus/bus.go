package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Bus is the NATS connection of a process. It is safe for concurrent use.
type Bus struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	embedded *server.Server
	log      *slog.Logger
	ctx      context.Context // the root of what handlers get: values of Connect's caller without its end

	queue chan *nats.Msg // doorbells
	lossy chan *nats.Msg // what goes behind them
	stop  chan struct{}
	done  sync.WaitGroup

	late                         atomic.Bool // the first connection came after Connect had returned
	published, dropped, received atomic.Uint64

	mu          sync.Mutex
	closed      bool
	topics      map[string]*topic
	reconnected map[*func()]struct{}
}

// Stats counts doorbells since Connect.
type Stats struct {
	Published uint64 // handed to the connection
	Dropped   uint64 // not sent: no connection, or too many at once
	Received  uint64 // handed to handlers, once per pattern
}

const (
	queueSize     = 8192
	lossySize     = 512
	writeDeadline = 5 * time.Second
	pingInterval  = 10 * time.Second
)

// Connect starts the embedded server or dials NATS. With a URL it does not wait:
// a NATS that is down now is dialled until it is there, and until then the bus
// drops what is published. Errors are those of the configuration and of an
// embedded server that does not start.
func Connect(ctx context.Context, cfg Config) (*Bus, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := &Bus{
		log:         cfg.Log,
		ctx:         context.WithoutCancel(ctx),
		queue:       make(chan *nats.Msg, queueSize),
		lossy:       make(chan *nats.Msg, lossySize),
		stop:        make(chan struct{}),
		topics:      map[string]*topic{},
		reconnected: map[*func()]struct{}{},
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	opts := b.options(cfg)
	if cfg.Embedded != nil {
		ns, err := startEmbedded(ctx, *cfg.Embedded, b.log)
		if err != nil {
			return nil, err
		}
		b.embedded = ns
		opts = append(opts, nats.InProcessServer(ns))
	}
	conn, err := nats.Connect(cfg.URL, opts...)
	if err != nil {
		b.stopEmbedded()
		return nil, fmt.Errorf("bus: connecting to NATS: %w", err)
	}
	b.conn = conn
	b.late.Store(!conn.IsConnected())
	if b.js, err = jetstream.New(conn); err != nil {
		b.Close()
		return nil, fmt.Errorf("bus: JetStream client: %w", err)
	}
	b.done.Add(1)
	go b.send()
	return b, nil
}

func (b *Bus) options(cfg Config) []nats.Option {
	name := cfg.Name
	if name == "" {
		name = "poppyfield"
	}
	opts := []nats.Option{
		nats.Name(name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, 500*time.Millisecond),
		// Without a connection a publish fails at once: a doorbell rung late helps nobody,
		// and a once-only key must never be written after its caller has given up.
		nats.ReconnectBufSize(-1),
		nats.FlusherTimeout(writeDeadline),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		nats.Timeout(writeDeadline),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				b.log.WarnContext(b.ctx, "nats connection lost", "error", err)
			}
		}),
		nats.ConnectHandler(func(*nats.Conn) {
			if b.late.Load() {
				b.afterReconnect()
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			b.log.InfoContext(b.ctx, "nats connection is back")
			b.afterReconnect()
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			b.log.ErrorContext(b.ctx, "nats error", "subject", subject, "error", err)
			if errors.Is(err, nats.ErrSlowConsumer) && subject != AllDeltas && subject != AllTaken { // doorbells were lost, as in a reconnect
				b.afterReconnect()
			}
		}),
	}
	if cfg.CredentialsFile != "" {
		opts = append(opts, nats.UserCredentials(cfg.CredentialsFile))
	}
	if cfg.CAFile != "" {
		opts = append(opts, nats.RootCAs(cfg.CAFile))
	}
	if cfg.CertFile != "" {
		opts = append(opts, nats.ClientCert(cfg.CertFile, cfg.KeyFile))
	}
	return opts
}

// Conn returns the connection, for health checks and JetStream; doorbells go through Publish and Subscribe.
func (b *Bus) Conn() *nats.Conn { return b.conn }

// JetStream returns the JetStream client of the connection.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// Connected reports whether a server is connected at this moment.
func (b *Bus) Connected() bool { return b.conn.IsConnected() }

// Stats returns the counts so far.
func (b *Bus) Stats() Stats {
	return Stats{Published: b.published.Load(), Dropped: b.dropped.Load(), Received: b.received.Load()}
}

// OnReconnect calls fn, on a goroutine of the connection, whenever doorbells may
// have been missed: after a reconnect and after messages were lost in the
// process. fn must return fast.
func (b *Bus) OnReconnect(fn func()) (remove func()) {
	key := &fn
	b.mu.Lock()
	b.reconnected[key] = struct{}{}
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		delete(b.reconnected, key)
		b.mu.Unlock()
	}
}

func (b *Bus) afterReconnect() {
	b.mu.Lock()
	fns := make([]func(), 0, len(b.reconnected))
	for fn := range b.reconnected {
		fns = append(fns, *fn)
	}
	b.mu.Unlock()
	for _, fn := range fns {
		fn()
	}
}

// Drain stops taking doorbells, lets queued ones out and handlers finish, and
// closes the bus; it gives up at the end of ctx and closes then.
func (b *Bus) Drain(ctx context.Context) error {
	b.stopSending()
	var err error
	if b.conn.IsConnected() {
		closed := b.conn.StatusChanged(nats.CLOSED)
		if err = b.conn.Drain(); err == nil {
			select {
			case <-closed:
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
	}
	b.Close()
	if err != nil {
		return fmt.Errorf("bus: draining: %w", err)
	}
	return nil
}

// Close ends the connection and an embedded server at once. It may be called more than once.
func (b *Bus) Close() {
	b.stopSending()
	b.conn.Close()
	b.stopEmbedded()
}

func (b *Bus) stopSending() {
	b.mu.Lock()
	already := b.closed
	b.closed = true
	b.mu.Unlock()
	if !already {
		close(b.stop)
	}
	b.done.Wait()
}

func (b *Bus) stopEmbedded() {
	if b.embedded != nil {
		b.embedded.Shutdown()
		b.embedded.WaitForShutdown()
	}
}
