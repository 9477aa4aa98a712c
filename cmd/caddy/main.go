// Command caddy is Caddy with its standard modules and Orderly: what
// "xcaddy build --with github.com/orderly-http/caddy-orderly" would build.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/orderly-http/caddy-orderly"
)

func main() {
	caddycmd.Main()
}
