// Package discovery owns section 3 of the protocol: the names of domains and
// issuers, the addresses of an issuer's endpoints, what a Company may publish,
// the two documents made from it (poppy.json and the RFC 8414 metadata), and
// what a reader has to check before it uses the pair.
//
// It does no I/O and has no clock. It does not know tenants, requests or
// storage: which domains are verified and which settings belong to a Company
// are the caller's facts, and fetching and redirects are the caller's work.
package discovery
