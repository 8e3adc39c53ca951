// Package outbox records what happens at a Company for its listening endpoints, in
// the transaction in which it happens: there is an event exactly if there is what it
// tells of. Who sends it, and how often, is the business of relay.
//
// Where nobody listens nothing is written, and asking costs a look into a map: what is
// known of the listeners is at most a second old. Endpoints that are off count too,
// since their events wait for them.
package outbox
