// Package dpop checks and builds DPoP Proofs (RFC 9449, Poppy 4.3): the JWT by which
// a Personal Agent shows, with every request, that it holds the key its Session
// Token is bound to.
//
// A check is pure. The URL of a request comes from the Company's configuration, never
// from a Host header; whether a proof's jti was used before, and which nonces are
// current, is asked of the caller's stores.
package dpop
