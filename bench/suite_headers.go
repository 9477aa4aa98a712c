//go:build linux

package main

import (
	"context"
	"slices"

	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite headers adds an ID to each response: beside the same server without
// one, and with a fixed text of the same length, for a header has its price, too.
// The groups are the servers.
var headersSuite = suite{name: "headers", measure: measureHeaders, tables: headersTables}

const (
	noHeader    = "no header"
	fixedHeader = "a fixed text"
	fixedText   = "cbpvimguo4hkaps9lf6g"
)

var headerServers = []string{"Caddy", "nginx", "apache2"}

func measureHeaders(ctx context.Context, b *workbench) error {
	c := &contest{workbench: b}
	caddy := func(name, directives string) {
		c.contestants = append(c.contestants, b.caddy(results.Subject{Group: "Caddy", Name: name}, directives+"respond ok", 0))
	}
	const set = "unique_ids\nheader X-Request-Id "
	caddy(noHeader, "")
	caddy(fixedHeader, set+fixedText+"\n")
	for _, placeholder := range []string{"{http.request.txid}", "{unique_id}", "{http.request.uuid}"} {
		caddy(placeholder, set+placeholder+"\n")
	}
	nginx := func(name, value string) {
		c.contestants = append(c.contestants, &contestant{
			Subject: results.Subject{Group: "nginx", Name: name}, start: servers.Nginx{Home: b.home, Header: value}.Start,
		})
	}
	nginx(noHeader, "")
	nginx(fixedHeader, fixedText)
	nginx("$request_id", "$request_id")
	apache := func(name, value string, ids bool) {
		c.contestants = append(c.contestants, &contestant{
			Subject: results.Subject{Group: "apache2", Name: name}, start: servers.Apache{Home: b.home, Header: value, UniqueID: ids}.Start,
		})
	}
	apache(noHeader, "", false)
	apache(fixedHeader, fixedText, false)
	apache("mod_unique_id", "%{UNIQUE_ID}e", true)
	return c.run(ctx, conditions([]int{32}, 0))
}

func headersTables(s results.Set) []table {
	cases := byClients(s)
	slices.SortStableFunc(cases, func(a, b results.Case) int {
		return slices.Index(headerServers, a.Group) - slices.Index(headerServers, b.Group)
	})
	without := func(c results.Case) results.Case { c.Name = noHeader; return c }
	return []table{tabulate(s, "An ID in a header of each response, 32 clients.", cases,
		subjectColumn("server, X-Request-Id"),
		spreadColumn("requests a second", rateMetric, itself),
		column{"of the same without", func(s results.Set, c results.Case) string { return spread(s.Ratio(c, without(c), rateMetric)) }},
	)}
}
