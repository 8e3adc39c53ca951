// Package clause gives the normative clauses of the specifications that
// Poppyfield implements stable, greppable names. The registry of the Poppy
// clauses is docs/specs/poppy-0.1.yaml; clauses of RFCs are named
// "RFC<number>/<section>" with an optional "#<item>".
//
// The package knows nothing of what a clause says: code names the clause beside
// the branch that enforces it, tests name the clauses they show.
package clause

// ID names one clause, for example "poppy-0.1/4.3#20" or "RFC9449/4.3#8".
// The empty ID means that no protocol rule is the cause.
type ID string
