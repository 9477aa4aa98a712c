package etcd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	_ "github.com/orderly-http/caddy-orderly" // the directive
)

const one = "endpoints http://10.0.0.1:2379\n"

// What engines of servers have in common is also tested with Redis.
func TestCaddyfile(t *testing.T) {
	for name, test := range map[string]struct{ caddyfile, json, err string }{
		"shortest": {one, `{"endpoints":["http://10.0.0.1:2379"]}`, ""},
		"all": {"endpoints https://a:2379 https://b\nnamespace shop\nttl 5s\nusername orderly\npassword {env.ETCD_PASSWORD}\n" +
			"tls {\nca ca.pem\ncert cert.pem\nkey key.pem\nserver_name etcd.example\n}",
			`{"endpoints":["https://a:2379","https://b"],"namespace":"shop","ttl":5000000000,"username":"orderly","password":"{env.ETCD_PASSWORD}",` +
				`"tls":{"ca":"ca.pem","cert":"cert.pem","key":"key.pem","server_name":"etcd.example"}}`, ""},
		"the later one overrides": {"endpoints http://a\nttl 3s\n" + one + "ttl 1h", `{"endpoints":["http://10.0.0.1:2379"],"ttl":3600000000000}`, ""},
		"unknown":                 {one + "timeout 3s", "", `engine etcd: unknown subdirective "timeout"; expected one of endpoints, namespace, ttl, username, password, tls, at Testfile:3`},
		"two namespaces":          {one + "namespace a b", "", "namespace: found 2 values"},
		// Bug: errors showed what may have a password.
		"a password of two words": {one + "password a hunter", "", "password: found 2 values"},
		"a login on a line":       {one + "username u hunter", "", "username: found 2 values"},
		"a URL on its own":        {"https://u:hunter@a", "", "unknown subdirective (not shown, since it may have a password)"},
		"tls, argument":           {one + "tls on", "", `tls: unexpected argument "on"`},
		"tls, unknown":            {one + "tls {\nverify off\n}", "", `tls: unknown subdirective "verify"; expected one of ca, cert, key, server_name, at Testfile:4`},
	} {
		t.Run(name, func(t *testing.T) {
			e := new(Engine)
			err := e.UnmarshalCaddyfile(caddyfile.NewTestDispenser("etcd {\n" + test.caddyfile + "\n}"))
			if (err == nil) != (test.err == "") || err != nil && (!strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), "Testfile:") || strings.Contains(err.Error(), "hunter")) {
				t.Fatalf("got %v; expected %s", err, test.err)
			}
			if got, _ := json.Marshal(e); err == nil && string(got) != test.json {
				t.Errorf("got  %s\nwant %s", got, test.json)
			}
		})
	}
}

func TestProvision(t *testing.T) {
	t.Setenv("ETCD_ENDPOINTS", "http://a/ http://[::1] http://b:1")
	t.Setenv("ETCD_PASSWORD", "secret")
	t.Setenv("ETCD_URL", "https://u:secret@a:2379")
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ json, err string }{
		"least":               {`{"endpoints":["http://a"]}`, ""},
		"from environment":    {`{"endpoints":["{env.ETCD_ENDPOINTS}"],"username":"u","password":"{env.ETCD_PASSWORD}"}`, ""}, // with the default port
		"https":               {`{"endpoints":["HTTPS://a"],"tls":{}}`, ""},
		"no endpoints":        {`{}`, "endpoints: none; expected at least one"},
		"bad endpoint":        {`{"endpoints":["a"]}`, "endpoints: expected a URL such as"},
		"mixed":               {`{"endpoints":["http://a","HTTPS://b"]}`, "expected all http or all https"}, // bug: only lower case was https
		"no such environment": {`{"endpoints":["http://a"],"username":"u","password":"{env.NO_SUCH_PASSWORD}"}`, "password: evaluated placeholder"},
		"no such file":        {`{"endpoints":["http://a"],"username":"u","password":"{file.` + dir + `/none}"}`, "password: "},
		"half a login":        {`{"endpoints":["http://a"],"username":"u"}`, "username and password"},
		"other scheme":        {`{"endpoints":["ftp://a"]}`, "endpoints: expected a URL such as"},
		"path":                {`{"endpoints":["http://a/b"]}`, "expected a URL"},
		"long ttl":            {`{"endpoints":["http://a"],"ttl":7200000000000}`, "ttl 2h0m0s: expected"},
		"parts of seconds":    {`{"endpoints":["http://a"],"ttl":2500000000}`, "ttl 2.5s: expected"},
		"tls without https":   {`{"endpoints":["http://a"],"tls":{}}`, `tls: endpoint "http://a:2379" is not https`},
		"empty ca":            {`{"endpoints":["https://a"],"tls":{"ca":"` + empty + `"}}`, "found no certificate"},
		"no cert":             {`{"endpoints":["https://a"],"tls":{"cert":"` + empty + `","key":"` + empty + `"}}`, "tls cert"},
		// Bug: these were quoted, with what is secret in them.
		"an endpoint's password":      {`{"endpoints":["{env.ETCD_URL}"]}`, "endpoints: expected a URL such as"},
		"an unreadable one":           {`{"endpoints":["https://u:secret%zz@a"]}`, "endpoints: expected a URL such as"},
		"a password with braces":      {`{"endpoints":["http://a"],"username":"u","password":"{secret}"}`, "password: unrecognized placeholder; expected"},
		"a key's text in place of it": {`{"endpoints":["https://a"],"tls":{"cert":"a","key":"-----BEGIN PRIVATE KEY-----\nsecret"}}`, "tls key: expected the path"},
		"bad namespace":               {`{"endpoints":["http://a"],"namespace":"/"}`, "namespace"},
		"namespace of pauses":         {`{"endpoints":["http://a"],"namespace":"x/!pause"}`, "expected none with /!"}, // bug: x logged its tickets as bad pauses
	} {
		t.Run(name, func(t *testing.T) {
			var e Engine
			if err := json.Unmarshal([]byte(test.json), &e); err != nil {
				t.Fatal(err)
			}
			err := e.Provision(caddy.Context{})
			if (err == nil) != (test.err == "") || (err != nil && (!strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "secret"))) {
				t.Fatalf("got %v, want %q", err, test.err)
			}
			if key, _ := e.Where(""); strings.Contains(key, "secret") || (err == nil) != strings.HasPrefix(key, "etcd:orderly/:") {
				t.Errorf("key %q", key)
			}
			if want := "http://a:2379 http://[::1]:2379 http://b:1"; name == "from environment" && strings.Join(e.options.Endpoints, " ") != want {
				t.Errorf("endpoints %s; expected %s", e.options.Endpoints, want)
			}
		})
	}
}
