// Package rpc is how services talk: real gRPC servers and client connections,
// over memory when they share a process and over TCP when they don't, with the
// same interceptors either way. It carries the Company of a call, who calls, and
// errors as google.rpc.Status.
package rpc
