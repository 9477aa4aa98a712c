//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite peers puts all that lets in one at a time side by side, with what each
// promises. The groups are what stands behind.
var peersSuite = suite{name: "peers", measure: measurePeers, tables: peersTables}

const (
	nginxLimit  = "nginx, limit_conn 1"
	apacheFree  = "Apache, free"
	behindProxy = "a backend"
	behindFiles = "a small file"
)

// promise is what a peer says of itself.
type promise struct{ order, exact, across string }

var promises = map[string]promise{
	caddyFree:   {"–", "no limit", "–"},
	caddyMemory: {"by ticket", "yes", "no"},
	caddyFile:   {"by ticket", "yes", "yes, on one machine"},
	haproxyOne:  {"of arrival", "yes", "no"},
	nginxLimit:  {"nobody waits", "yes", "its own workers"},
	qosQueue:    {"none", "until a wait of 300 s", "its own workers"},
	apacheFree:  {"–", "no limit", "–"},
}

func (b *bench) limitingNginx() servers.Program {
	return servers.Nginx{
		HTTP: fmt.Sprintf("limit_conn_zone $server_port zone=one:1m;\n\tupstream back { server %s; keepalive 64; }", b.backend.Addr),
		Site: "limit_conn one 1;\n\t\tlocation / { proxy_pass http://back; proxy_http_version 1.1; proxy_set_header Connection \"\"; }",
	}.Program()
}

func (b *bench) qosApache() servers.Program {
	return servers.Apache{Serialize: true, Modules: []string{"proxy", "proxy_http"}, Directives: fmt.Sprintf("ProxyPass / http://%s/\n", b.backend.Addr)}.Program()
}

func measurePeers(ctx context.Context, b *bench) error {
	haproxy := b.peer(haproxyOne, servers.HAProxy{Backend: b.backend.Addr, MaxConn: 1}.Program())
	haproxy.Setting = machine.Version(ctx, "haproxy")
	proxies := &contest{bench: b, upstream: b.backend, contestants: append(b.caddies(b.reverseProxy()), haproxy,
		b.peer(nginxLimit, b.limitingNginx()), b.peer(qosQueue, b.qosApache()))}
	for _, who := range proxies.contestants {
		who.Group = behindProxy
	}
	if err := proxies.compare(ctx, each([]int{32}, 0, 500*time.Microsecond)); err != nil {
		return err
	}
	files := fmt.Sprintf("root * %s\nfile_server", b.home)
	contestants := append(b.caddies(files), b.peer(apacheFree, servers.Apache{}.Program()), b.peer(qosQueue, servers.Apache{Serialize: true}.Program()))
	for _, who := range contestants {
		who.Group = behindFiles
	}
	if err := os.WriteFile(filepath.Join(b.home, "index.html"), []byte("ok"), 0o644); err != nil {
		return err
	}
	return (&contest{bench: b, contestants: contestants}).compare(ctx, each([]int{32}, 0))
}

func peersTables(s figures.Set) (tables []table) {
	promised := func(head string, of func(promise) string) column {
		return label(head, func(c figures.Case) string { return of(promises[c.Contestant]) })
	}
	for _, group := range []string{behindProxy, behindFiles} {
		cases := only(inOrder(s, figures.Rate, byConditions), func(c figures.Case) bool { return c.Group == group })
		tables = append(tables, tabulate(s, "32 clients, in front of "+group+".", cases,
			label("server", func(c figures.Case) string { c.Group = ""; return name(c) }),
			label("backend takes", hold),
			spread("answers a second", figures.Rate), median("refusals a second", figures.Refused),
			median("median wait, ms", figures.Median), median("99th percentile", figures.Late), median("inside at once", figures.Inside),
			promised("order", func(p promise) string { return p.order }),
			promised("exact", func(p promise) string { return p.exact }),
			promised("across processes", func(p promise) string { return p.across })))
	}
	return tables
}
