// Package relaybench measures whole turns: an agent's message that is stored, delivered
// to a Company's backend over TLS, answered, stored and returned, on a PostgreSQL that
// flushes its log at every commit. Beside each figure stands what the same disk gives
// without the product. `make bench-relay` runs it and prints a table; elsewhere it is skipped.
package relaybench
