// Package installation tests `poppyfield serve` as it runs in production: on PostgreSQL
// and NATS, in one process or split over six, behind a reverse proxy that terminates TLS.
package installation
