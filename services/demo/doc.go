// Package demo is Noodle Bar, a small Company to try Poppyfield with: a website on a
// domain of its own, an order book, an identity provider with its customers' accounts
// (package identity), an agent backend that answers signed webhooks by what the
// User has granted, and an MCP server on the same orders.
//
// It stands where any customer stands: it is set up through the public admin REST
// API, redirects its own poppy.json, and verifies what it is sent. It must not know
// how Poppyfield's services are built, import one of them, or read their data.
package demo
