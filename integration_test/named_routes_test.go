//go:build unix

package integration_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Bug: Caddy numbers the groups of named routes separately from those of sites. So the
// queue of a named route could have the group of a route that the request had already
// used. Caddy then skipped the queue, and all requests entered at once.
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
		{"route through two", "invoke inner\n}\n&(inner) {\n" + queue + proxy, "rewrite * {uri}\ninvoke app"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{upstream: upstream, more: "&(app) {\n" + test.route + "}", site: test.site})
			holder := bringInside(t, upstream, func() testcaddy.Answer { return c.get("/old?name=holder&gate") })
			waiter := c.getting("/old?name=waiter")
			c.awaitTickets(2)
			release(t, upstream, holder)
			(<-waiter).Want(t, http.StatusOK)
			upstream.WantAlone()
		})
	}
}

// So did a queue in a handle block of a named route, which has a group of Caddy's own.
func TestQueueInAGroupOfANamedRoute(t *testing.T) {
	t.Parallel()
	const handles = "handle /old {\nserialize {\npath {$DIR}\n}\nrespond old\n}\nhandle {\nrespond new\n}\n"
	for _, test := range []struct {
		name, route, site, more string
		refused                 bool
	}{
		{"handle blocks in the site", handles, "handle /old {\ninvoke app\n}\nhandle /b {\nrespond b\n}\nhandle {\nrespond no\n}", "", true},
		{"fewer blocks, whose group has another name", handles, "handle /old {\ninvoke app\n}\nhandle {\nrespond no\n}", "", false},
		{"in a block of a block", "handle {\n" + handles + "}\n", "handle /old {\ninvoke app\n}\nhandle /b {\nrespond b\n}\nhandle {\nrespond no\n}", "", true},
		{"invoked in an error route", handles, "error 404\nhandle_errors {\nhandle /old {\ninvoke app\n}\nhandle /b {\nrespond b\n}\nhandle {\nrespond no\n}\n}", "", true},
		{"invoked in an error route after handle blocks", handles, "handle /old {\nerror 500\n}\nhandle {\nrespond no\n}\nhandle_errors {\ninvoke app\n}", "", true},
		{"invoked for a response", handles, "handle /old {\nintercept {\nhandle_response {\ninvoke app\n}\n}\nrespond x\n}\nhandle {\nrespond no\n}", "", true},
		{"no group in the site", handles, "invoke app", "", false},
		{"a group in another site", handles, "invoke app", "http://127.0.0.2:{$PORT} {\nhandle /old {\nrespond old\n}\nhandle /b {\nrespond b\n}\nhandle {\nrespond no\n}\n}", false},
		{"a queue before the blocks", "serialize {\npath {$DIR}\n}\nhandle /never {\nrespond no\n}\nhandle {\nrespond old\n}\n", "route {\nrewrite /old /old\n}\ninvoke app", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{site: "respond first"})
			err := c.reload(setup{more: "&(app) {\n" + test.route + "}\n" + test.more, site: test.site, dir: c.dir})
			if !test.refused {
				check(t, err)
				return
			}
			if err == nil || !strings.Contains(err.Error(), "lead requests past the queue") {
				t.Errorf("loading: %v", err)
			}
		})
	}
}
