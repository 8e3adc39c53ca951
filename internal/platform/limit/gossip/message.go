package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/limit"
)

// MaxKeys is the most keys of a message.
const MaxKeys = 1000

const (
	version    = 1
	headerSize = 1 + 16 + 8
	entrySize  = 16 + 4
)

// sender names a process for as long as it runs.
type sender [16]byte

// message is what a process tells of one Limiter: a version, who tells, the how manieth
// it is, and for each key its hash and the microseconds that were taken.
type message struct {
	from   sender
	number uint64 // from 1
	spent  []limit.Spent
}

func (m message) encode() []byte {
	out := make([]byte, 0, headerSize+len(m.spent)*entrySize)
	out = append(out, version)
	out = append(out, m.from[:]...)
	out = binary.BigEndian.AppendUint64(out, m.number)
	for _, s := range m.spent {
		out = append(out, s.Key[:]...)
		out = binary.BigEndian.AppendUint32(out, uint32(s.Time/time.Microsecond))
	}
	return out
}

// parse reads what encode wrote, and nothing else.
func parse(raw []byte) (message, error) {
	var m message
	n := (len(raw) - headerSize) / entrySize
	switch {
	case len(raw) < headerSize+entrySize, len(raw) != headerSize+n*entrySize, n > MaxKeys:
		return m, fmt.Errorf("has %d bytes", len(raw))
	case raw[0] != version:
		return m, fmt.Errorf("is of version %d", raw[0])
	}
	m.from = sender(raw[1:17])
	if m.number = binary.BigEndian.Uint64(raw[17:headerSize]); m.number == 0 {
		return m, errors.New("has no number")
	}
	seen := make(map[limit.Hash]struct{}, n)
	m.spent = make([]limit.Spent, 0, n)
	for at := raw[headerSize:]; len(at) > 0; at = at[entrySize:] {
		s := limit.Spent{Key: limit.Hash(at[:16]), Time: time.Duration(binary.BigEndian.Uint32(at[16:entrySize])) * time.Microsecond}
		if s.Time <= 0 || s.Time > limit.MaxSpent {
			return m, fmt.Errorf("says that %s was taken", s.Time)
		}
		if _, twice := seen[s.Key]; twice {
			return m, errors.New("names a key twice")
		}
		seen[s.Key] = struct{}{}
		m.spent = append(m.spent, s)
	}
	return m, nil
}
