// Package agent is a real Personal Agent on the command line: its own client
// document and keys, discovery with every check the protocol asks of agents,
// Sessions bound to a DPoP key, sign-in by all three types, and conversations that go
// on from run to run.
//
// It speaks to Companies as anybody's agent would, over public HTTPS interfaces
// alone, and works at every Company that speaks draft 0.1. It must not know how
// Poppyfield's services are built, import one of them, or read their data.
//
// One person uses it: whoever runs the command is the User, and what they type
// is sent as their own words unless they say otherwise.
package agent
