// Package refusal says how a request is refused: status, challenge and body of RFC 6749,
// RFC 9449 and Poppy 4.3, 6 and 7.13. It writes no answer itself.
package refusal
