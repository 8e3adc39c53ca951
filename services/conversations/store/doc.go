// Package store reads and writes the rows of conversations, their events and their
// deliveries. It gives sequence numbers, leases and the rules that keep rows in
// order; what an event means and when one is due is decided by its callers.
package store
