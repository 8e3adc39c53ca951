package bus

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
)

// Publish rings a doorbell. It never blocks and reports nothing: what cannot be
// sent now is dropped and counted, since a sweep or the listener's own time-out
// finds the change anyway. data should say no more than where to look.
func (b *Bus) Publish(ctx context.Context, subject string, data []byte) {
	if err := checkSubject(subject, false); err != nil {
		b.dropped.Add(1)
		b.log.ErrorContext(ctx, "refusing to publish", "error", err)
		return
	}
	if !b.conn.IsConnected() {
		b.dropped.Add(1)
		return
	}
	msg := &nats.Msg{Subject: subject, Data: data}
	carrier := propagation.HeaderCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, carrier)
	if len(carrier) > 0 {
		msg.Header = nats.Header(carrier)
	}
	select {
	case b.queue <- msg:
	default:
		b.dropped.Add(1)
	}
}

// send hands queued messages to the connection, which may block for as long as
// its write deadline when the network stalls; a request must not wait for that.
func (b *Bus) send() {
	defer b.done.Done()
	for {
		select {
		case msg := <-b.queue:
			b.sendOne(msg)
		case <-b.stop:
			for {
				select {
				case msg := <-b.queue:
					b.sendOne(msg)
				default:
					return
				}
			}
		}
	}
}

func (b *Bus) sendOne(msg *nats.Msg) {
	if err := b.conn.PublishMsg(msg); err != nil {
		b.dropped.Add(1)
		return
	}
	b.published.Add(1)
}
