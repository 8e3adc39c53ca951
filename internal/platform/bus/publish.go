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
	msg := b.message(ctx, subject, data)
	if msg == nil {
		return
	}
	carrier := propagation.HeaderCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, carrier)
	if len(carrier) > 0 {
		msg.Header = nats.Header(carrier)
	}
	b.enqueue(b.queue, msg)
}

// PublishLossy is Publish for what is shown or lost, such as the pieces of a message
// that is being written. It has little room of its own and goes behind all
// doorbells, so that however much comes, it displaces none. It carries no trace.
func (b *Bus) PublishLossy(ctx context.Context, subject string, data []byte) {
	if msg := b.message(ctx, subject, data); msg != nil {
		b.enqueue(b.lossy, msg)
	}
}

// message makes what is to be sent; nil for what can't be sent now.
func (b *Bus) message(ctx context.Context, subject string, data []byte) *nats.Msg {
	if err := checkSubject(subject, false); err != nil {
		b.dropped.Add(1)
		b.log.ErrorContext(ctx, "refusing to publish", "error", err)
		return nil
	}
	if !b.conn.IsConnected() {
		b.dropped.Add(1)
		return nil
	}
	return &nats.Msg{Subject: subject, Data: data}
}

func (b *Bus) enqueue(queue chan<- *nats.Msg, msg *nats.Msg) {
	select {
	case queue <- msg:
	default:
		b.dropped.Add(1)
	}
}

// send hands queued messages to the connection, which may block for as long as
// its write deadline when the network stalls; a request must not wait for that.
func (b *Bus) send() {
	defer b.done.Done()
	for {
		select { // doorbells first
		case msg := <-b.queue:
			b.sendOne(msg)
			continue
		default:
		}
		select {
		case msg := <-b.queue:
			b.sendOne(msg)
		case msg := <-b.lossy:
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
