// Package sse reads a stream of server-sent events (WHATWG HTML, section 9.2):
// which bytes make which event, and how large one may get.
//
// It does no I/O: bytes are given to it in pieces of any size. It must not know
// what the events say, nor anything of reconnecting: id is reported, retry is not.
package sse
