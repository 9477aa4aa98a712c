//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite real has PHP work behind the queue: what users feel. The groups are the
// servers.
var realSuite = suite{name: "real", measure: measureReal, tables: realTables}

const (
	noQueue   = "free"
	qosQueue  = "mod_qos, QS_SrvSerialize"
	pageBytes = 60 << 10
)

func measureReal(ctx context.Context, b *bench) error {
	php, err := servers.StartPHP(ctx, b.home)
	if err != nil {
		return b.skip("real work", err)
	}
	defer php.Stop()
	fastcgi := fmt.Sprintf("root * %s\nphp_fastcgi unix/%s", php.Dir, php.Socket)
	haproxy := servers.HAProxy{Backend: "unix@" + php.Socket, PHP: php.Dir}
	apache := servers.Apache{Modules: []string{"proxy", "proxy_fcgi"}, Directives: fmt.Sprintf("ProxyPass / unix:%s|fcgi://localhost%s/\n", php.Socket, php.Dir)}
	free := []*contestant{
		b.caddy("", fastcgi).as("Caddy", noQueue),
		b.peer("", haproxy.Program()).as("HAProxy", noQueue),
		b.peer("", apache.Program()).as("Apache", noQueue),
	}
	haproxy.MaxConn, apache.Serialize = 1, true
	queues := []*contestant{
		b.serializing("", fastcgi).as("Caddy", caddyMemory),
		b.serializing(b.disk, fastcgi).as("Caddy", caddyFile),
		b.peer("", haproxy.Program()).as("HAProxy", "maxconn 1"),
		b.peer("", apache.Program()).as("Apache", qosQueue),
	}
	lone := &contest{bench: b, upstream: php, contestants: append(free, queues...)}
	if err := lone.compare(ctx, works(1, b.quick)); err != nil {
		return err
	}
	loaded := &contest{bench: b, upstream: php, contestants: queues}
	return loaded.compare(ctx, works(32, b.quick))
}

// works are the scripts: short ones with a short answer, and a page.
func works(clients int, quick bool) (all []figures.Case) {
	for _, held := range pick(quick, []time.Duration{5}, []time.Duration{1, 5, 20}) {
		all = append(all, figures.Case{Clients: clients, Hold: held * time.Millisecond})
	}
	return append(all, figures.Case{Clients: clients, Hold: 5 * time.Millisecond, Bytes: pageBytes})
}

func realTables(s figures.Set) []table {
	free := func(c figures.Case) figures.Case { return instead(noQueue)(c) }
	cases := inOrder(s, figures.Rate, byConditions)
	work := label("script, server", func(c figures.Case) string {
		text := hold(c)
		if c.Bytes > 0 {
			text += fmt.Sprintf(" and %d KB", c.Bytes>>10)
		}
		return text + ", " + name(c)
	})
	return []table{
		tabulate(s, "What a queue adds to the response time of a lone request, milliseconds.",
			only(cases, func(c figures.Case) bool { return c.Clients == 1 }), work,
			spread("median", figures.Median), more("more than free", figures.Median, free), median("99th percentile", figures.Late)),
		tabulate(s, "How idle PHP is while 32 clients ask: from the end of one script to the start of the next.",
			only(inOrder(s, figures.Rate, byConditions), func(c figures.Case) bool { return c.Clients == 32 }), work,
			spread("requests a second", figures.Rate), spread("gap, µs, median", figures.Gap), median("99th percentile", figures.GapLate),
			median("idle, %", figures.Idle), median("inside at once", figures.Inside)),
	}
}
