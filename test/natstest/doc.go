// Package natstest gives tests a real NATS server with JetStream on loopback: either
// a process of its own, which can be killed and started again on the same port and
// data, or one inside the test binary, as `poppyfield dev` embeds it.
//
// The process is built from the version of nats-server that go.mod names, once a
// machine. The package knows nothing of streams and subjects.
package natstest
