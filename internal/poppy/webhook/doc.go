// Package webhook owns the contract between the relay and a Company's backend:
// the body of a delivery and of a check of credentials, their signatures (Standard
// Webhooks 1.0.0, v1 and v1a), what the backend may answer, and how an attempt's
// outcome decides the next one.
//
// It does no I/O and has no clock or randomness: keys, times and jitter are given
// to it. It does not know tenants, queues or the HTTP client that delivers.
package webhook
