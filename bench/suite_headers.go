//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite headers adds an ID to each response: beside the same server without one,
// and with a fixed text of the same length, for a header has its price, too. The
// groups are the servers.
var headersSuite = suite{name: "headers", measure: measureHeaders, tables: headersTables}

const (
	noHeader    = "no header"
	fixedHeader = "a fixed text"
	fixedText   = "cbpvimguo4hkaps9lf6g"
)

var headerServers = []string{"Caddy", "nginx", "apache2"}

func measureHeaders(ctx context.Context, b *bench) error {
	c := &contest{bench: b}
	add := func(group, contestantName string, who *contestant) {
		who.Case = figures.Case{Group: group, Contestant: contestantName}
		c.contestants = append(c.contestants, who)
	}
	const set = "unique_ids\nheader X-Request-Id "
	for _, h := range [][2]string{
		{noHeader, ""}, {fixedHeader, set + fixedText}, {"{http.request.txid}", set + "{http.request.txid}"},
		{"{unique_id}", set + "{unique_id}"}, {"{http.request.uuid}", set + "{http.request.uuid}"},
	} {
		add("Caddy", h[0], b.caddy("", h[1]+"\nrespond ok"))
	}
	for _, h := range [][2]string{{noHeader, ""}, {fixedHeader, fixedText}, {"$request_id", "$request_id"}} {
		site := "return 200 ok;"
		if h[1] != "" {
			site = fmt.Sprintf("add_header X-Request-Id %q;\n%s", h[1], site)
		}
		add("nginx", h[0], b.peer("", servers.Nginx{Site: site}.Program()))
	}
	add("apache2", noHeader, b.peer("", servers.Apache{Modules: []string{"headers"}}.Program()))
	for _, a := range []struct{ name, value, module string }{{fixedHeader, fixedText, "headers"}, {"mod_unique_id", "%{UNIQUE_ID}e", "unique_id"}} {
		directive := fmt.Sprintf("Header set X-Request-Id %q", a.value)
		modules := slices.Compact([]string{"headers", a.module})
		add("apache2", a.name, b.peer("", servers.Apache{Modules: modules, Directives: directive}.Program()))
	}
	return c.compare(ctx, each([]int{32}, 0))
}

func headersTables(s figures.Set) []table {
	cases := inOrder(s, figures.Rate, func(a, b figures.Case) int {
		return cmp.Compare(slices.Index(headerServers, a.Group), slices.Index(headerServers, b.Group))
	})
	return []table{tabulate(s, "An ID in a header of each response, 32 clients.", cases,
		label("server, X-Request-Id", name), spread("requests a second", figures.Rate),
		column{"of that without", func(s figures.Set, c figures.Case) string {
			return rangeText(s.Ratio(c, instead(noHeader)(c), figures.Rate))
		}})}
}
