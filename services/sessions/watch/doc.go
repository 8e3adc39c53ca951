// Package watch tells open streams after which changes what is known of Sessions must
// be forgotten. The database has the changes; the bus only says when to look, so that
// a doorbell that is lost costs no more than the time to the next look. It knows no
// gRPC, and nothing of what a change was.
package watch
