// Package devca is a certificate authority for development on one machine: the
// dev server, the demo website and the agent of the command line share it by
// naming the same directory.
//
// It owns the files ca.pem and ca.key there and issues certificates in memory. It
// must not be used where anybody else's browser or client would have to trust it,
// and it does not know which names exist: its callers say which to serve.
package devca
