// Package readers measures what agents cost that wait: the memory of a server with many
// long polls and streams open, beside a bare net/http server with as many, and how long
// a new event takes from before it is written to the agent. `make bench-readers` runs it
// and prints a table; elsewhere it is skipped.
package readers
