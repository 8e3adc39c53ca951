package gossip

// maxSenders bounds of how many processes is remembered what they said.
const maxSenders = 256

// window is how far a message may be behind a later one of its sender.
const window = 64

// heard remembers which messages were taken, so that none is taken twice, in whatever order they come.
type heard struct {
	turn uint64
	of   map[sender]*said
}

type said struct {
	turn   uint64 // of the latest message
	newest uint64
	before uint64 // bit i: newest-i was taken
}

// take reports whether a message is to be taken. One that is too far behind isn't.
func (h *heard) take(from sender, number uint64) bool {
	h.turn++
	s, ok := h.of[from]
	if !ok {
		if len(h.of) >= maxSenders {
			h.forgetOldest()
		}
		h.of[from] = &said{turn: h.turn, newest: number, before: 1}
		return true
	}
	s.turn = h.turn
	switch {
	case number > s.newest:
		s.before = s.before<<(number-s.newest) | 1 // a shift by 64 or more leaves 0
		s.newest = number
	case s.newest-number >= window, s.before>>(s.newest-number)&1 == 1:
		return false
	default:
		s.before |= 1 << (s.newest - number)
	}
	return true
}

func (h *heard) forgetOldest() {
	var oldest sender
	turn := h.turn
	for from, s := range h.of {
		if s.turn < turn {
			oldest, turn = from, s.turn
		}
	}
	delete(h.of, oldest)
}
