// Package installation tests that `poppyfield serve` outlives what it stands on: NATS
// and PostgreSQL that go away and come back, and its own orderly end.
package installation
