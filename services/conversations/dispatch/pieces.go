package dispatch

// maxPieces bounds the text of the pieces of one attempt, in bytes: no message is longer.
const maxPieces = 256 << 10

// upTo passes pieces on as long as all of them have at most n bytes. The first one that
// doesn't fit is the last: a text with a gap is no beginning of the message.
func upTo(n int, out func(string)) func(string) {
	return func(text string) {
		if len(text) > n {
			n = 0
			return
		}
		n -= len(text)
		out(text)
	}
}
