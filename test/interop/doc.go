// Package interop drives the built server with software that others wrote: the npm
// packages oauth4webapi as an agent's OAuth client and standardwebhooks as a
// backend's verifier; and with the SDK for TypeScript, which others run. The scripts beside it know public interfaces only; the Go test
// starts the server for them.
package interop
