// Package app holds what is decided about keys to the admin API: who a key belongs
// to, what it may do, and how keys are made and revoked.
//
// It must not know transports or SQL.
package app
