// Package whole is what tests of the built binary share: the world outside of the
// installation (an agent's documents, websites, backends), a personal agent, a caller
// of the admin API, and an installation of `poppyfield serve` with its PostgreSQL, NATS
// and reverse proxy. Of the product it uses the protocol core alone, to sign and verify.
package whole
