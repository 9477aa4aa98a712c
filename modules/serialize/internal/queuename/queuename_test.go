package queuename_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queuename"
)

// What `printf %s 'a b' | sha256sum | cut -c1-16` prints.
const hashed = "c8687a08aa5d6ed2"

func parse(t testing.TB, prefix string) *queuename.Prefix {
	t.Helper()
	p, err := queuename.Parse(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// request has a host, the value in a cookie, a field or a parameter whose name is asked for,
// and the variables a and b.
func request(host, name, value, a, b string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	query := r.URL.Query()
	query.Set(name, value)
	r.URL.RawQuery, r.Host = query.Encode(), host
	r.TLS = &tls.ConnectionState{HandshakeComplete: true, ServerName: host}
	r.Header.Set(name, value)
	r.AddCookie(&http.Cookie{Name: name, Value: value})
	repl := caddy.NewReplacer()
	r = caddyhttp.PrepareRequest(r, repl, httptest.NewRecorder(), new(caddyhttp.Server))
	repl.Set("http.reverse_proxy.header."+name, value)
	repl.Set("http.vars."+name, value)
	repl.Set("http.vars.a", a)
	repl.Set("http.vars.b", b)
	return r
}

// Bug: one site had a queue for each spelling of its host, and two requests were inside.
func TestHostIsOneQueueInEachSpelling(t *testing.T) {
	for _, c := range []struct{ placeholder, hosts, want string }{
		{"http.request.host", "shop.example SHOP.example Shop.Example. shop.example:80 SHOP.EXAMPLE.:8080 ſhop.example", "shop.example"},
		{"http.request.host", "[::1] [::1]:80", "%3A%3A1"},
		{"http.request.hostport", "shop.example SHOP.example Shop.Example.", "shop.example"},
		{"http.request.hostport", "shop.example:80 SHOP.example:80 Shop.Example.:80", "shop.example%3A80"},
		{"http.request.host.labels.1", "shop.example SHOP.example Shop.Example. shop.example.:80", "shop"},
		{"http.request.host.labels.2", "shop.example shop.example.", ""},
		{"http.request.tls.server_name", "shop.example SHOP.example", "shop.example"},
		{"http.request.header.X-Name", "Shop.example", "Shop.example"}, // others keep their case
	} {
		p := parse(t, "site_{"+c.placeholder+"}_")
		for host := range strings.FieldsSeq(c.hosts) {
			if name := p.Queue(request(host, "X-Name", host, "", "")); name != "site_"+c.want+"_" || !p.CanBe(name) {
				t.Errorf("{%s} of %s is in queue %s, which can be: %t; expected site_%s_", c.placeholder, host, name, p.CanBe(name), c.want)
			}
		}
	}
}

// Bug: session cookies and keys stood in names, and so in files, logs and lists.
func TestCredentialsAreHashed(t *testing.T) {
	for _, c := range []struct {
		space, name string
		hashed      bool
	}{
		{"http.request.cookie.", "session", true},
		{"http.request.header.", "Cookie", true},
		{"http.request.header.", "authorization", true},
		{"http.request.header.", "Proxy-Authorization", true},
		{"http.request.header.", "X-Api-Key", true},
		{"http.request.header.", "X-CSRFToken", true},
		{"http.request.header.", "Client-SECRET-2", true},
		{"http.request.header.", "X-Tenant", false},
		{"http.request.uri.query.", "apikey", true},
		{"http.request.uri.query.", "access_token", true},
		{"http.request.uri.query.", "clientSecret", true},
		{"http.request.uri.query.", "user", false},
		{"http.reverse_proxy.header.", "X-Auth-Token", true},
		{"http.vars.", "token", false},
	} {
		p, want := parse(t, "by_{"+c.space+c.name+"}_"), "by_a b_"
		if c.hashed {
			want = "by_" + hashed + "_"
		}
		r := request("example.com", c.name, "a b", "", "")
		r.Header.Del("Cookie")
		r.AddCookie(&http.Cookie{Name: c.name, Value: "a b", Quoted: true})
		if c.name == "Cookie" {
			r.Header.Set("Cookie", "a b")
		}
		if name := p.Queue(r); name != want || !p.CanBe(name) {
			t.Errorf("{%s%s} is in queue %s, which can be: %t; expected %s", c.space, c.name, name, p.CanBe(name), want)
		}
		r = request("example.com", c.name, "", "", "")
		r.Header.Del("Cookie")
		if name := p.Queue(r); name != "by__" || !p.CanBe(name) {
			t.Errorf("without a value, {%s%s} is in queue %s", c.space, c.name, name)
		}
	}
}

// Bug: values that have the text between them, such as "x_" and "y", or "x" and "_y", shared
// a queue.
func TestDifferentValuesAreDifferentQueues(t *testing.T) {
	values := []string{"", "x", "x_", "_x", "x__", "~", "~-", "x~", "x~-", "-", "=", "=.", "x-_", "_-x", "x/y", "%5F", "0000", "é" + strings.Repeat("x_", 70)}
	for _, between := range []string{"_", "-", "~", "__", "_-_", "x", "~-", ":", " ", ""} {
		p := parse(t, "t_{http.vars.a}"+between+"{http.vars.b}_")
		seen := make(map[string][2]string)
		for _, a := range values {
			for _, b := range values {
				name := p.Queue(request("example.com", "X", "", a, b))
				if other, ok := seen[name]; ok || !p.CanBe(name) {
					t.Errorf("{a}%s{b}: %q and %q are in queue %s, as %q; it can be: %t", between, a, b, name, other, p.CanBe(name))
				}
				seen[name] = [2]string{a, b}
			}
		}
	}
	t.Setenv("A", "x_~-")
	for prefix, want := range map[string]string{ // nothing that need not be is changed
		"t_{http.vars.a}_":              "t_x_~-_",
		"t_{http.vars.a}_{http.vars.b}": "t_x~-~~-_x_~-",
		"t_{env.A}_{http.vars.b}_":      "t_x_~-_x_~-_",
		"t_{http.vars.a}.{http.vars.b}": "t_x_~~-.x_~-",
		"t_{env.A}{http.vars.b}":        "t_x_~-x_~-",
	} {
		if name := parse(t, prefix).Queue(request("example.com", "X", "", "x_~-", "x_~-")); name != want {
			t.Errorf("%s is %s; expected %s", prefix, name, want)
		}
	}
}

// Bug: a pause of a host in capitals, or of a credential, was accepted, and paused nothing.
func TestNamesThatNoRequestHas(t *testing.T) {
	for _, c := range []struct {
		prefix, name string
		want         bool
	}{
		{"a_", "a_", true},
		{"a_", "a", false},
		{"site_{http.request.host}_", "site_shop.example_", true},
		{"site_{http.request.host}_", "site_Shop.example_", false},
		{"site_{http.request.host}_", "site_", false},
		{"s_{http.request.cookie.session}_", "s_" + hashed + "_", true},
		{"s_{http.request.cookie.session}_", "s__", true},
		{"s_{http.request.cookie.session}_", "s_letmein_", false},
		{"user_{http.auth.user.id}_", "user_Anna_", true},
	} {
		if got := parse(t, c.prefix).CanBe(c.name); got != c.want {
			t.Errorf("a queue of %s can be %s: %t; expected %t", c.prefix, c.name, got, c.want)
		}
	}
}

// Braces that end nowhere are text, and so many that Caddy gives up are refused: all requests
// would share a queue without a name.
func TestParse(t *testing.T) {
	if p := parse(t, "a{b"); p.Many() || p.Names != "a{b" {
		t.Errorf("a{b is %+v", p)
	}
	for _, prefix := range []string{strings.Repeat("{", 200), "a\x00{b}"} {
		if _, err := queuename.Parse(prefix); err == nil {
			t.Errorf("%q is accepted", prefix)
		}
	}
}

// A prefix without placeholders costs nothing, and one with the host as much as its text.
func TestAllocations(t *testing.T) {
	r := request("shop.example", "X", "", "", "")
	for prefix, most := range map[string]float64{"a_": 0, "site_{http.request.host}_": 3} {
		p := parse(t, prefix)
		if got := testing.AllocsPerRun(100, func() { p.Queue(r) }); got > most {
			t.Errorf("%s allocates %.0f times; expected %.0f at most", prefix, got, most)
		}
	}
}
