// Package conversation owns section 7 of the protocol: what a message is and when
// two are the same, the merged context, cursors, the parameters of a read, the
// states of a conversation and the events that their changes add, and the JSON
// of all that.
//
// It does no I/O and has no clock: sequence numbers, times and keys are given to
// it. It does not know tokens, tenants, storage or how a Company's backend is
// reached; who owns a conversation it judges from names alone.
package conversation
