package main

import (
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

// openers open a store of lock files. Tests add wrong ones, whose defects must be found.
var openers = map[string]func(p *process) (serializer.Store, error){"lockfile": openLockfile}

func openLockfile(p *process) (serializer.Store, error) {
	return lockfile.Open(p.Dir, lockfile.Options{Clock: p.clock})
}
