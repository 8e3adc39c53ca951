// Package backends lets a running relay ask servers that other people wrote: a chat
// model's endpoint and A2A agents of both versions, without a line of a Company's code.
package backends
