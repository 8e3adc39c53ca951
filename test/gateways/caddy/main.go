// Command caddy is Caddy with its standard modules, for the tests beside it. It is a
// module of its own, so that Caddy's dependencies stay out of the product's.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

func main() { caddycmd.Main() }
