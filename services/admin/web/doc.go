// Package web is the admin API over HTTP: REST, translated to gRPC calls of the
// public server like any client's, and watches as server-sent events. It checks a
// request's form so that mistakes are named in the caller's terms; what the request
// may do is the gate's to say.
package web
