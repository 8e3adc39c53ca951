package usage

import (
	"time"

	"github.com/poppyfield/poppyfield/ent/usage"
)

// Kind is something that is counted.
type Kind uint8

// The kinds.
const (
	Sessions           Kind = iota // Sessions started
	MessagesFromAgents             // messages of Personal Agents accepted
	MessagesToAgents               // messages of the Company's side recorded
	Deliveries                     // attempts to bring a message to the Company's backend
	Verifications                  // calls of the Company's APIs judged
	kinds
)

var names = [kinds]usage.Kind{
	usage.KindSessions, usage.KindMessagesFromAgents, usage.KindMessagesToAgents, usage.KindDeliveries, usage.KindVerifications,
}

// Counts are one number for each Kind.
type Counts [kinds]int64

// add counts n more of a kind as it is stored.
func (c *Counts) add(stored usage.Kind, n int64) {
	for k, name := range names {
		if name == stored {
			c[k] += n
		}
	}
}

// Quota is what a limit is set for.
type Quota uint8

// The quotas.
const (
	SessionQuota  Quota = iota
	MessageQuota        // of both directions together
	DeliveryQuota       // refuses new messages of agents; what was accepted is delivered
	VerificationQuota
	quotas
)

// Amounts are one number for each Quota.
type Amounts [quotas]int64

var quotaOf = [kinds]Quota{SessionQuota, MessageQuota, MessageQuota, DeliveryQuota, VerificationQuota}

// Amounts returns how much of each quota the counts are.
func (c Counts) Amounts() Amounts {
	var out Amounts
	for k, n := range c {
		out[quotaOf[k]] += n
	}
	return out
}

const dayFormat = "2006-01-02"

// Day is the name of the day of UTC that t is in.
func Day(t time.Time) string { return t.UTC().Format(dayFormat) }

// ParseDay reads the name of a day.
func ParseDay(s string) (time.Time, error) { return time.Parse(dayFormat, s) }

// Month returns the first moment of the month of UTC that t is in, and that of the next one.
func Month(t time.Time) (begin, end time.Time) {
	t = t.UTC()
	begin = time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	return begin, begin.AddDate(0, 1, 0)
}
