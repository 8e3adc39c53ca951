// Package replay remembers what may be used only once: the jti of assertions and
// DPoP proofs (RFC 9449 section 11.1). It owns a JetStream key-value bucket that
// all processes of an installation share, in which the first to create a key wins.
//
// It fails closed. Where the bucket cannot be reached nothing is new, and a bucket
// that was lost and made again cannot vouch for anything older than itself. The
// package must not know what a proof is, nor what a caller answers.
package replay
