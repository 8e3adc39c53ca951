// Package guard is a reverse proxy that a Company runs before an API or an MCP server of
// its own: what an agent may ask for goes on, with a signed header field that says who is
// asking, and the rest is refused here. It reaches Poppyfield as any Company's code does,
// by sdk/go, and must not know how the services are built.
package guard
