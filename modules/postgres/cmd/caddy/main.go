// Command caddy is Caddy with its standard modules, Orderly, and Orderly's postgres engine.
// It is what "xcaddy build --with github.com/orderly-http/caddy-orderly --with
// github.com/orderly-http/caddy-orderly/modules/postgres" builds.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/orderly-http/caddy-orderly"
	_ "github.com/orderly-http/caddy-orderly/modules/postgres"
)

func main() {
	caddycmd.Main()
}
