// Package migrations holds the versioned schema of both databases. Files are
// written by ent/migrate/diff from the entities; row-level security, composite
// foreign keys and grants are added to the PostgreSQL files by hand.
package migrations

import "embed"

// FS has the directories postgres and sqlite.
//
//go:embed postgres/*.sql sqlite/*.sql
var FS embed.FS
