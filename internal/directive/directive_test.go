package directive_test

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
)

type settings struct {
	value, text string
	duration    caddy.Duration
	count       int
}

var table = directive.Table[*settings]{
	directive.On("value", func(s *settings, d *caddyfile.Dispenser) (err error) {
		s.value, err = directive.Value(d, "a word")
		return err
	}),
	directive.On("text", func(s *settings, d *caddyfile.Dispenser) (err error) {
		s.text, err = directive.Text(d, "a word")
		return err
	}),
	directive.On("wait", func(s *settings, d *caddyfile.Dispenser) (err error) {
		s.duration, err = directive.Duration(d)
		return err
	}),
	directive.On("count", func(s *settings, d *caddyfile.Dispenser) (err error) {
		s.count, err = directive.Count(d, 1)
		return err
	}),
}

func parse(table directive.Table[*settings], text string) (s settings, err error) {
	d := caddyfile.NewTestDispenser(text)
	d.Next()
	return s, table.ParseBlock(d, "dir", &s)
}

func TestParse(t *testing.T) {
	got, err := parse(table, "dir {\n\tvalue \"\"\n\ttext first\n\ttext a\n\twait 1m\n\tcount 3\n}")
	want := settings{text: "a", duration: caddy.Duration(60e9), count: 3}
	if err != nil || got != want {
		t.Errorf("parsed %+v, %v; expected %+v", got, err, want)
	}
}

func TestRefused(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"dir extra", `dir: unexpected argument "extra"; expected a block`},
		{"dir {\n\tother\n}", `dir: unknown subdirective "other"; expected one of value, text, wait, count`},
		{"dir {\n\tvalue\n}", `value: no value; expected a word`},
		{"dir {\n\tvalue a b\n}", `value: unexpected "b" after "a"; expected a word`},
		{"dir {\n\ttext \"\"\n}", `text: empty; expected a word`},
		{"dir {\n\twait x\n}", `wait "x": expected a duration of 0 or more with a unit, such as 60s or 5m`},
		{"dir {\n\twait -1s\n}", `wait -1s: expected a duration of 0 or more, such as 60s`},
		{"dir {\n\tcount x\n}", `count "x": expected a whole number, 1 or more`},
		{"dir {\n\tcount 0\n}", `count 0: expected a whole number, 1 or more`},
	} {
		_, err := parse(table, tt.line)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: error is %v; expected %s", tt.line, err, tt.want)
		}
	}
	_, err := parse(nil, "dir {\n\tother\n}")
	if want := `dir: unknown subdirective "other"; it has none`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v; expected %s", err, want)
	}
}
