//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The subjects that tables and plots look for.
const (
	caddyFree       = "Caddy, free"
	caddyMemory     = "serialize, memory"
	haproxyFree     = "HAProxy, free"
	haproxyOne      = "HAProxy, maxconn 1"
	haproxyThread   = "HAProxy, maxconn 1, one thread"
	fileSubject     = "serialize, file on " // + the file system
	tmpfsFileSystem = "tmpfs"
)

// onFile is the subject of lock files in a directory.
func onFile(dir string) string { return fileSubject + machine.FileSystem(dir) }

// caddyWith is a Caddy with some directives, and perhaps some environment.
func (b *workbench) caddyWith(name, directives string, processes int, env ...string) *contestant {
	return &contestant{name: name, processes: processes, start: func(ctx context.Context) (*servers.Server, error) {
		program, err := b.caddy(ctx)
		if err != nil {
			return nil, err
		}
		return servers.Caddy{Program: program, Home: b.home, Directives: directives, Processes: processes, Env: env}.Start(ctx)
	}}
}

// serializing is a Caddy that serializes what is behind, with lock files in
// dir, or in memory where there is none.
func (b *workbench) serializing(dir, behind string, processes int, env ...string) (*contestant, error) {
	name, engine := caddyMemory, "engine memory"
	if dir != "" {
		locks, err := fresh(dir)
		if err != nil {
			return nil, err
		}
		name, engine = onFile(dir), "path "+locks
	}
	c := b.caddyWith(name, fmt.Sprintf("serialize {\n\t%s\n}\n%s", engine, behind), processes, env...)
	c.serial = true
	return c, nil
}

// caddies are the Caddy without a queue and those with one.
func (b *workbench) caddies(behind string) ([]*contestant, error) {
	all := []*contestant{b.caddyWith(caddyFree, behind, 0)}
	for _, dir := range []string{"", b.shm, b.disk} {
		c, err := b.serializing(dir, behind, 0)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// haproxies are the HAProxy without a limit, the one with the least, and that
// one with a single thread: its threads get into each other's way there.
func (b *workbench) haproxies(backend string) []*contestant {
	proxy := func(name string, limit, threads int) *contestant {
		return &contestant{name: name, start: servers.HAProxy{Home: b.home, Backend: backend, MaxConn: limit, Threads: threads}.Start}
	}
	return []*contestant{proxy(haproxyFree, 0, 0), proxy(haproxyOne, 1, 0), proxy(haproxyThread, 1, 1)}
}

// reverseProxy is the directive that sends requests on. Its connections are
// kept, for any number of clients: by default it would keep 32.
func reverseProxy(backend string) string {
	return fmt.Sprintf("reverse_proxy %s {\n\ttransport http {\n\t\tkeepalive_idle_conns_per_host 8192\n\t}\n}", backend)
}

// isFile reports whether a subject keeps lock files on a disk.
func isFile(subject string) bool {
	return strings.HasPrefix(subject, fileSubject) && !strings.HasSuffix(subject, tmpfsFileSystem)
}
