// Package pgtest gives tests a real PostgreSQL server of their own: one a test binary,
// started at the first call, on loopback, with a database a test that is cloned from a
// migrated template. The role that tests connect as owns its databases and is neither
// superuser nor free of row-level security, as in production.
//
// The binaries are those of the Debian package postgresql; without them a test fails.
// The package knows nothing of the schema: migrations are passed in.
package pgtest
