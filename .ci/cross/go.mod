// Type-checks the tree for the systems that CI does not run.
module github.com/orderly-http/caddy-orderly/ci/cross

go 1.26.0

tool golang.org/x/tools/go/packages/gopackages

require (
	golang.org/x/mod v0.35.0 // indirect
	golang.org/x/sync v0.20.0 // indirect
	golang.org/x/tools v0.44.0 // indirect
)
