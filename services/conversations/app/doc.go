// Package app decides: whether a message is new, a retry or refused, what a
// conversation's events are, when a read is held and when it ends, and which
// conversations are overdue, inactive or old.
//
// A change of a conversation is one transaction under the lock of its row: events,
// state, merged context and the delivery to the backend are there together or not
// at all. The doorbell rings after the commit.
package app
