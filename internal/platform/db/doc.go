// Package db is the only way to the database. It opens PostgreSQL or SQLite,
// migrates, and hands out units of work: Write and Read for one Company, System
// for the few jobs that cross Companies.
//
// Tenant isolation is kept here and not in the stores: a client-level interceptor
// and hook confine every query and mutation of a tenant's entity to the unit's
// Company, and on PostgreSQL row-level security does the same once more below.
// Without a unit of work, nothing can be read or written.
package db
