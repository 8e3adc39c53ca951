// Package poppy is what a Company puts before its own APIs and behind its own agent: it
// judges the requests of Personal Agents (Poppy 4.3, 6), by asking for each of them or
// by itself, and it reads and answers signed webhooks.
//
// It must not import a service or the platform that services run on: whoever imports it
// gets gRPC, protobuf and the protocol's core.
package poppy
