package servers

import (
	"context"
	"text/template"

	"golang.org/x/sys/unix"
)

// HAProxy is Debian's, in front of a backend.
type HAProxy struct {
	Home    string // where its files may lie
	Backend string // host:port
	MaxConn int    // how many requests the backend gets at once; 0 is no limit
	Threads int    // 0 is one for each core, as by default
}

// Connections to the backend are kept and shared as freely as HAProxy can
// ("always"), which is its fastest.
var haproxy = program{
	name: "haproxy",
	args: []string{"-db", "-f", "FILE"},
	config: template.Must(template.New("haproxy").Parse(`global
	maxconn {{.Server.Connections}}
	{{with .Server.Threads}}nbthread {{.}}{{end}}
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
	bind {{.Addr}}
	default_backend back

backend back
	server place {{.Server.Backend}} {{with .Server.MaxConn}}maxconn {{.}}{{end}}
`)),
}

// Start runs it.
func (h HAProxy) Start(ctx context.Context) (*Server, error) { return haproxy.start(ctx, h.Home, h) }

// Connections is how many the limit of open files allows: each takes two.
func (HAProxy) Connections() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1000
	}
	return max(400, min(limit.Cur/2, 20_000)) - 300
}
