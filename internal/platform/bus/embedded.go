package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	embeddedStart = 15 * time.Second
	// JetStream acknowledges what the operating system has taken; this bounds what a
	// power cut can take back. A killed process loses nothing.
	embeddedSync      = time.Second
	embeddedMaxMemory = 256 << 20
	embeddedMaxStore  = 4 << 30
)

func startEmbedded(ctx context.Context, e Embedded, log *slog.Logger) (*server.Server, error) {
	ns, err := server.NewServer(&server.Options{
		ServerName:         "poppyfield-embedded",
		DontListen:         true,
		NoSigs:             true,
		JetStream:          true,
		StoreDir:           e.StoreDir,
		JetStreamMaxMemory: embeddedMaxMemory,
		JetStreamMaxStore:  embeddedMaxStore,
		SyncInterval:       embeddedSync,
	})
	if err != nil {
		return nil, fmt.Errorf("bus: configuring the embedded NATS server: %w", err)
	}
	sl := &serverLog{ctx: context.WithoutCancel(ctx), log: log}
	ns.SetLoggerV2(sl, false, false, false)
	ns.Start()
	wait := embeddedStart
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)) //nolint:forbidigo // a deadline of the context is in the system's time
	}
	if !ns.ReadyForConnections(wait) || !ns.JetStreamEnabled() {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, errors.New("bus: the embedded NATS server did not start; is another process using its store directory?")
	}
	return ns, nil
}

// serverLog hands the server's warnings and errors to slog; the rest of what it says is chatter.
type serverLog struct {
	ctx context.Context // the server's logging interface has none
	log *slog.Logger
}

func (l *serverLog) Noticef(string, ...any) {}
func (l *serverLog) Debugf(string, ...any)  {}
func (l *serverLog) Tracef(string, ...any)  {}

func (l *serverLog) Warnf(format string, v ...any) {
	l.log.WarnContext(l.ctx, "embedded nats server", "detail", fmt.Sprintf(format, v...))
}

func (l *serverLog) Errorf(format string, v ...any) {
	l.log.ErrorContext(l.ctx, "embedded nats server", "detail", fmt.Sprintf(format, v...))
}

func (l *serverLog) Fatalf(format string, v ...any) { l.Errorf(format, v...) }
