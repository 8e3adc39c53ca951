// Package keys owns the installation's root key and everything that is derived
// from it: sealing of secrets at rest with a key of each Company's own, the DPoP
// nonces, and the making and hashing of tokens.
//
// It must not know what a sealed value is used for, and it never logs: a value of
// type Secret shows itself only to Reveal.
package keys
