// Package schema says which entities there are: their fields and indexes and
// nothing else. Rules of the domain live in the services, tenant isolation in
// internal/platform/db.
//
// Entities have no edges: a row names its neighbours by id, and the composite
// foreign keys that keep a row within its Company are written into the
// migrations by hand.
package schema
