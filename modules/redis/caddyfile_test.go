package redis

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	_ "github.com/orderly-http/caddy-orderly" // the directive
)

const one = "address 10.0.0.1:6379\n"

func TestCaddyfile(t *testing.T) {
	for name, test := range map[string]struct{ caddyfile, json, err string }{
		"shortest": {one, `{"address":["10.0.0.1:6379"]}`, ""},
		"all": {`
			address a:6379 b
			namespace shop
			ttl 5s
			username orderly
			password {env.REDIS_PASSWORD}
			database 3
			tls {
				ca ca.pem
				cert cert.pem
				key key.pem
				server_name redis.example
			}`, `{"address":["a:6379","b"],"database":3,"namespace":"shop","ttl":5000000000,"username":"orderly","password":"{env.REDIS_PASSWORD}",` +
			`"tls":{"ca":"ca.pem","cert":"cert.pem","key":"key.pem","server_name":"redis.example"}}`, ""},
		"the later one overrides": {"address a\nttl 3s\n" + one + "ttl 4s", `{"address":["10.0.0.1:6379"],"ttl":4000000000}`, ""},
		"empty tls":               {one + "tls {\n}", `{"address":["10.0.0.1:6379"],"tls":{}}`, ""},
		"unknown":                 {one + "timeout 3s", "", `engine redis: unknown subdirective "timeout"; expected one of address, database, namespace, ttl, username, password, tls`},
		"ttl":                     {one + "ttl soon", "", `ttl "soon": expected a duration`},
		"empty namespace":         {one + `namespace ""`, "", "namespace: empty; expected"},
		"database":                {one + "database -1", "", "database"},
	} {
		t.Run(name, func(t *testing.T) {
			e := new(Engine)
			err := e.UnmarshalCaddyfile(caddyfile.NewTestDispenser("redis {\n" + test.caddyfile + "\n}"))
			if (err == nil) != (test.err == "") || err != nil && (!strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), "Testfile:")) {
				t.Fatalf("got %v; expected %s", err, test.err)
			}
			if got, _ := json.Marshal(e); err == nil && string(got) != test.json {
				t.Errorf("got  %s\nwant %s", got, test.json)
			}
		})
	}
}

func TestProvision(t *testing.T) {
	t.Setenv("REDIS_SERVERS", "a [::1] b:1")
	t.Setenv("REDIS_PASSWORD", "secret")
	for name, test := range map[string]struct{ json, space, err string }{
		"least":                {`{"address":["a"]}`, "redis:orderly:0:a:6379", ""},
		"password alone":       {`{"address":["a"],"password":"p"}`, "redis:orderly:0:a:6379", ""},
		"from environment":     {`{"address":["{env.REDIS_SERVERS}"],"database":3,"namespace":"x","username":"u","password":"{env.REDIS_PASSWORD}"}`, "redis:x:3:[::1]:6379,a:6379,b:1", ""},
		"no address":           {`{}`, "", "address: none; expected at least one"},
		"no host":              {`{"address":[":6379"]}`, "", "address: expected host:port"},
		"negative database":    {`{"address":["a"],"database":-1}`, "", "database -1: expected 0 or more"}, // bug: it was accepted
		"IPv6":                 {`{"address":["::1","[::2]:1","[fe80::1%eth0]"]}`, "redis:orderly:0:[::1]:6379,[::2]:1,[fe80::1%eth0]:6379", ""},
		"a name as port":       {`{"address":["u:secret"]}`, "", "address: expected host:port"},
		"a URL":                {`{"address":["redis://:secret@a:6379"]}`, "", "address: expected host:port such as 10.0.0.1:6379, and the options username and password"},
		"user and password":    {`{"address":["u:secret@a:6379"]}`, "", "address: expected host:port"},
		"password alone first": {`{"address":["secret@a:6379"]}`, "", "address: expected host:port"},
		"parameters":           {`{"address":["a:6379?password=secret"]}`, "", "address: expected host:port"},
		"colons":               {`{"address":["u:secret:a:6379"]}`, "", "address: expected host:port"},
		"no such environment":  {`{"address":["a"],"password":"{env.NO_SUCH_PASSWORD}"}`, "", "password: evaluated placeholder"},
		"short ttl":            {`{"address":["a"],"ttl":1000000}`, "", "ttl 1ms: expected"},
		"ttl in seconds":       {`{"address":["a"],"ttl":5}`, "", `in JSON, a number is nanoseconds: write a text such as "30s"`},
		"username alone":       {`{"address":["a"],"username":"u"}`, "", "username: expected a password, too"},
		"cert alone":           {`{"address":["a"],"tls":{"cert":"a.pem"}}`, "", "tls: expected cert and key, both or neither"},
		"no ca":                {`{"address":["a"],"tls":{"ca":"/nonexistent.pem"}}`, "", "tls ca: open"},
	} {
		t.Run(name, func(t *testing.T) {
			var e Engine
			if err := json.Unmarshal([]byte(test.json), &e); err != nil {
				t.Fatal(err)
			}
			err := e.Provision(caddy.Context{})
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("got %v, want %q", err, test.err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") { // bug: errors quoted addresses with a password
				t.Errorf("a secret is shown: %v", err)
			}
			if key, space := e.Where(""); err == nil && space != test.space || strings.Contains(key, "secret") {
				t.Errorf("space %q, key %q; expected space %q", space, key, test.space)
			}
		})
	}
}
