//go:build linux

package main

import (
	"cmp"
	"context"
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
	caddy := func(contestantName, directives string) *contestant {
		return b.caddy("", directives+"\nrespond ok").as("Caddy", contestantName)
	}
	const set = "unique_ids\nheader X-Request-Id "
	nginx := func(contestantName, directives string) *contestant {
		return b.peer("", servers.Nginx{Site: directives + "return 200 ok;"}.Program()).as("nginx", contestantName)
	}
	apache := func(contestantName, directives string, modules ...string) *contestant {
		return b.peer("", servers.Apache{Modules: modules, Directives: directives}.Program()).as("apache2", contestantName)
	}
	c := &contest{bench: b, contestants: []*contestant{
		caddy(noHeader, ""),
		caddy(fixedHeader, set+fixedText),
		caddy("{http.request.txid}", set+"{http.request.txid}"),
		caddy("{unique_id}", set+"{unique_id}"),
		caddy("{http.request.uuid}", set+"{http.request.uuid}"),
		nginx(noHeader, ""),
		nginx(fixedHeader, "add_header X-Request-Id "+fixedText+";\n"),
		nginx("$request_id", "add_header X-Request-Id $request_id;\n"),
		apache(noHeader, "", "headers"),
		apache(fixedHeader, "Header set X-Request-Id "+fixedText, "headers"),
		apache("mod_unique_id", "Header set X-Request-Id %{UNIQUE_ID}e", "headers", "unique_id"),
	}}
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
