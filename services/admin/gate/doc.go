// Package gate is the one way into the admin API. Every call, by gRPC or REST, goes
// through the same steps in the same order: who calls, how often, may they, which
// Company is it about, is the request sound, was it made before. Then the very same
// message goes to the service that owns the method.
//
// It decides nothing about the resources themselves.
package gate
