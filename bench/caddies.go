//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The Caddies of several suites. The one with lock files has a file system.
var (
	caddyFree   = results.Subject{Name: "Caddy, free"}
	caddyMemory = results.Subject{Name: "serialize, memory"}
	caddyFile   = results.Subject{Name: "serialize, file"}
)

const tmpfs = "tmpfs" // the file system in memory

// on is the subject with lock files below dir.
func on(dir string, s results.Subject) results.Subject {
	s.FileSystem = machine.FileSystem(dir)
	return s
}

// onDisk is the subject that keeps lock files on a disk, whatever its file
// system.
func onDisk(s results.Set, m results.Metric, want results.Subject) results.Subject {
	for _, subject := range s.Subjects(m) {
		if subject.Name == want.Name && subject.FileSystem != tmpfs {
			return subject
		}
	}
	return results.Subject{}
}

// caddy is a Caddy with some directives, and perhaps some environment.
func (b *workbench) caddy(subject results.Subject, directives string, processes int, env ...string) *contestant {
	return &contestant{Subject: subject, processes: processes, start: func(ctx context.Context) (*servers.Server, error) {
		return b.startCaddy(ctx, directives, processes, env)
	}}
}

// startCaddy starts a Caddy with the plugin, which is built first if it is not
// yet.
func (b *workbench) startCaddy(ctx context.Context, directives string, processes int, env []string) (_ *servers.Server, err error) {
	if b.program == "" {
		b.say("building caddy with the plugin")
		if b.program, err = servers.BuildCaddy(ctx, b.home); err != nil {
			return nil, err
		}
	}
	return servers.Caddy{Program: b.program, Home: b.home, Directives: directives, Processes: processes, Env: env}.Start(ctx)
}

// serializing is a Caddy that serializes the upstream, with lock files below dir,
// or in memory where dir is empty.
func (b *workbench) serializing(dir, upstream string, processes int, env ...string) *contestant {
	c := &contestant{Subject: caddyMemory, processes: processes, serial: true}
	if dir != "" {
		c.Subject = on(dir, caddyFile)
	}
	c.start = func(ctx context.Context) (*servers.Server, error) {
		engine := "engine memory"
		if dir != "" {
			locks, err := fresh(dir)
			if err != nil {
				return nil, fmt.Errorf("making a directory for lock files: %w", err)
			}
			engine = "path " + locks
		}
		return b.startCaddy(ctx, fmt.Sprintf("serialize {\n\t%s\n}\n%s", engine, upstream), processes, env)
	}
	return c
}

// caddies are the Caddy without a queue and those with one.
func (b *workbench) caddies(upstream string) []*contestant {
	return []*contestant{
		b.caddy(caddyFree, upstream, 0),
		b.serializing("", upstream, 0), b.serializing(b.shm, upstream, 0), b.serializing(b.disk, upstream, 0),
	}
}

// reverseProxy is the directive that sends requests on. Its connections are
// kept, for any number of clients: by default it would keep 32.
func reverseProxy(backend *servers.Backend) string {
	return fmt.Sprintf("reverse_proxy %s {\n\ttransport http {\n\t\tkeepalive_idle_conns_per_host 8192\n\t}\n}", backend.Addr)
}
