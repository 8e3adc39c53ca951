// Package fault tests that `poppyfield dev` keeps its word when it is killed at any
// moment: what an agent saw accepted is neither lost nor doubled.
package fault
