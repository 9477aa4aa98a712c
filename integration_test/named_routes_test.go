//go:build unix

package integration_test

import "testing"

// Bug: Caddy numbers the groups of named routes separately from those of sites. So the
// queue of a named route could have the group of a route that the request had already
// used. Caddy then skipped the queue, and all requests entered at once. The block route is
// there because Caddy 2.11 keeps only the first directive of a named route without matchers.
func TestQueueOfANamedRoute(t *testing.T) {
	const (
		queue  = "serialize {\npath {$DIR}\n}\n"
		nested = "serialize {\npath {$DIR}\nprefix outer_\nconcurrency 4\nengine memory\n}\nserialize /exempt off\n"
		proxy  = "reverse_proxy {$UPSTREAM}\n"
	)
	for _, test := range []struct{ name, route, site string }{
		{"rewrite in the site", queue + proxy, "rewrite /old /new?{query}\ninvoke app"},
		{"rewrite of every request", queue + proxy, "rewrite * {uri}\ninvoke app"},
		{"queue in the site, with an exception", queue + proxy, nested + "invoke app"},
		{"paths in the route", "serialize /never off\n" + queue + proxy, nested + "invoke app"},
		{"handle blocks in the route", queue + "handle /never {\nrespond no\n}\nhandle {\n" + proxy + "}\n", nested + "invoke app"},
		{"route through two", "invoke inner\n}\n}\n&(inner) {\nroute {\n" + queue + proxy, "rewrite * {uri}\ninvoke app"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{more: "&(app) {\nroute {\n" + test.route + "}\n}", site: test.site})
			c.wantTurns("/old", "/old")
		})
	}
}
