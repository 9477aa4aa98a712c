package servers

import (
	"context"
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"
)

// HAProxy is Debian's, in front of a backend.
type HAProxy struct {
	Home    string
	Backend string // host:port
	MaxConn int    // how many requests the backend gets at once; 0 is no limit
	Threads int    // 0 is one for each core, as by default
}

// Connections to the backend are kept and shared as freely as HAProxy can
// ("always"), which is its fastest.
const haproxyConfig = `global
	maxconn %d
	%s
	log 127.0.0.1:1 local0 emerg

defaults
	mode http
	timeout connect 10s
	timeout client 120s
	timeout server 120s
	timeout queue 60s
	option http-keep-alive
	http-reuse always

frontend front
	bind %s
	default_backend back

backend back
	server place %s %s
`

// Start runs it.
func (h HAProxy) Start(ctx context.Context) (*Server, error) {
	program, err := find("haproxy", "haproxy")
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	limit := ""
	if h.MaxConn > 0 {
		limit = fmt.Sprint("maxconn ", h.MaxConn)
	}
	threads := ""
	if h.Threads > 0 {
		threads = fmt.Sprint("nbthread ", h.Threads)
	}
	_, file, err := writeFile(h.Home, "haproxy.cfg", fmt.Sprintf(haproxyConfig, connections(), threads, addr, h.Backend, limit))
	if err != nil {
		return nil, err
	}
	return start(ctx, exec.Command(program, "-db", "-f", file), addr)
}

// connections is how many the limit of open files allows: each takes two.
func connections() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1000
	}
	return max(400, min(limit.Cur/2, 20_000)) - 300
}
