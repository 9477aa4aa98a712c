package serialize

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queuename"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// A setting is one subdirective of serialize and the JSON field of the same name. The
// Caddyfile, the defaults and the checks come from the table of settings; a test compares
// docs/directives.md and the comments of the fields of [Handler], which Caddy's site shows.
type setting struct {
	name   string
	syntax string // of the values
	usual  string // the default, as the documents say it
	parse  func(*Handler, *caddyfile.Dispenser) error
	fill   func(*Handler)       // applies the default; nil if there is none
	check  func(*Handler) error // after parse, or after the defaults; nil if all is allowed
}

const (
	defaultPrefix  = "serializer_"
	defaultTimeout = "60s"

	dropNewest = "drop_newest"
	dropOldest = "drop_oldest"

	onDisconnectFinish = "finish"
	onDisconnectCancel = "cancel"

	maxBuffer     = 1 << 30
	maxBufferDisk = 1 << 40
)

// settings are in the order of the documents.
var settings = []setting{
	{
		name: "path", syntax: "<directory>", usual: "`queues` in Caddy's data directory",
		parse: (*Handler).parsePath, // engines.ExpandPath does the rest
	}, {
		name: "prefix", syntax: "<text>", usual: defaultPrefix,
		parse: func(s *Handler, d *caddyfile.Dispenser) (err error) {
			s.Prefix, err = directive.Value(d, "a text")
			return err
		},
		fill:  func(s *Handler) { s.Prefix = cmp.Or(s.Prefix, defaultPrefix) },
		check: func(s *Handler) error { return checkPrefix(s.Prefix) },
	},
	methods("skip_methods", func(s *Handler) *[]string { return &s.SkipMethods }),
	timeout(),
	number("queue_length", "<n>", 0, directive.AtLeast(0), func(s *Handler) *int { return &s.QueueLength }),
	choice("when_full", func(s *Handler) *string { return &s.WhenFull }, dropNewest, dropOldest),
	number("error_code", "<status>", 503, directive.Range{Least: 400, Most: 599, Want: "a status from 400 to 599"},
		func(s *Handler) *int { return &s.ErrorCode }),
	{
		name: "error_response", syntax: "<mime type> <body>", usual: "none: the error goes to `handle_errors`",
		parse: (*Handler).parseErrorResponse,
		check: func(s *Handler) error { return checkErrorResponse(s.ErrorResponse) },
	},
	number("concurrency", "<n>", 1, directive.AtLeast(1), func(s *Handler) *int { return &s.Concurrency }),
	slots(),
	methods("shared_methods", func(s *Handler) *[]string { return &s.SharedMethods }),
	duration("hold_timeout", "0", func(s *Handler) **caddy.Duration { return &s.HoldTimeout }),
	holdAtLeast(),
	choice("on_disconnect", func(s *Handler) *string { return &s.OnDisconnect }, onDisconnectFinish, onDisconnectCancel),
	{
		name: "buffer", syntax: "<size> [<disk>]", usual: "64KiB 256MiB",
		parse: (*Handler).parseBuffer,
		fill: func(s *Handler) {
			s.Buffer, s.BufferDisk = cmp.Or(s.Buffer, new(directive.Size(64<<10))), cmp.Or(s.BufferDisk, new(directive.Size(256<<20)))
		},
		check: func(s *Handler) error {
			return errors.Join(
				directive.CheckSize("buffer", s.Buffer, directive.Off, maxBuffer, "from 0 to 1GiB, such as 64KiB, or off, which is -1 in JSON"),
				directive.CheckSize("buffer_disk", s.BufferDisk, 0, maxBufferDisk, "from 0 to 1TiB, such as 256MiB"))
		},
	}, {
		name: "response_buffer", syntax: "<size>", usual: "256KiB",
		parse: func(s *Handler, d *caddyfile.Dispenser) error {
			return directive.Sizes(d, "a size such as 256KiB", &s.ResponseBuffer)
		},
		fill: func(s *Handler) { s.ResponseBuffer = cmp.Or(s.ResponseBuffer, new(directive.Size(256<<10))) },
		check: func(s *Handler) error {
			return directive.CheckSize("response_buffer", s.ResponseBuffer, 0, maxBuffer, "from 0 to 1GiB, such as 256KiB")
		},
	}, {
		name: "waiting_page", syntax: "[{ ... }]", usual: "none",
		parse: (*Handler).parseWaitingPage, // WaitingPage.provision does the rest
	}, {
		name: "visit", syntax: "<idle> [<longest>]", usual: "none",
		parse: (*Handler).parseVisit,
		check: func(s *Handler) error { return s.Visit.check() },
	}, {
		name: "keepalive", syntax: "[<interval>] [always]", usual: "off",
		parse: (*Handler).parseKeepAlive,
		fill: func(s *Handler) {
			if s.KeepAlive != nil {
				s.KeepAlive.Interval = cmp.Or(s.KeepAlive.Interval, new(caddy.Duration(15*time.Second)))
			}
		},
		check: func(s *Handler) error { return s.KeepAlive.check() },
	}, {
		name: "dry_run", usual: "off",
		parse: func(s *Handler, d *caddyfile.Dispenser) error {
			s.DryRun = true
			return directive.Flag(d)
		},
	}, {
		name: "engine", syntax: "<name> [{ ... }]", usual: "file",
		parse: (*Handler).parseEngine, // engines.Load does the rest
	},
}

// subdirectives are those of the settings.
var subdirectives = func() (table directive.Table[*Handler]) {
	for _, setting := range settings {
		table = append(table, directive.On(setting.name, func(s *Handler, d *caddyfile.Dispenser) error {
			if err := setting.parse(s, d); err != nil || setting.check == nil {
				return err
			}
			return directive.In(d, setting.check(s))
		}))
	}
	return table
}()

// fillIn applies the defaults, and refuses settings that make no sense.
func (s *Handler) fillIn() (err error) {
	if s.Path, err = engines.ExpandPath(s.Path); err != nil {
		return err
	}
	errs := []error{s.checkTogether(), s.fillInSlots()}
	for _, setting := range settings {
		if setting.fill != nil {
			setting.fill(s)
		}
		if setting.check != nil {
			errs = append(errs, setting.check(s))
		}
	}
	return errors.Join(errs...)
}

// duration is a setting of 0 or more.
func duration(name, usual string, field func(*Handler) **caddy.Duration) setting {
	return setting{
		name: name, syntax: "<duration>", usual: usual,
		parse: func(s *Handler, d *caddyfile.Dispenser) error {
			value, err := directive.Duration(d, 0)
			*field(s) = &value
			return err
		},
		fill: func(s *Handler) {
			value, _ := caddy.ParseDuration(usual)
			*field(s) = cmp.Or(*field(s), new(caddy.Duration(value)))
		},
		check: func(s *Handler) error { return directive.CheckDuration(name, time.Duration(**field(s)), 0) },
	}
}

// number is a setting that is a whole number.
func number(name, syntax string, usual int, allowed directive.Range, field func(*Handler) *int) setting {
	return setting{
		name: name, syntax: syntax, usual: strconv.Itoa(usual),
		parse: func(s *Handler, d *caddyfile.Dispenser) (err error) {
			*field(s), err = allowed.Parse(d)
			return err
		},
		fill:  func(s *Handler) { *field(s) = cmp.Or(*field(s), usual) },
		check: func(s *Handler) error { return allowed.Check(name, *field(s)) },
	}
}

// choice is a setting that is one of two words; the first is the default.
func choice(name string, field func(*Handler) *string, words ...string) setting {
	expected := strings.Join(words, " or ")
	return setting{
		name: name, syntax: strings.Join(words, "|"), usual: words[0],
		parse: func(s *Handler, d *caddyfile.Dispenser) (err error) {
			*field(s), err = directive.Value(d, expected)
			return err
		},
		fill: func(s *Handler) { *field(s) = cmp.Or(*field(s), words[0]) },
		check: func(s *Handler) error {
			if word := *field(s); !slices.Contains(words, word) {
				return fmt.Errorf("%s %q: expected %s", name, word, expected)
			}
			return nil
		},
	}
}

// methods is a setting that lists request methods, separated by spaces or commas. A blank
// text is none.
func methods(name string, field func(*Handler) *[]string) setting {
	return setting{
		name: name, syntax: "<method...>", usual: "none",
		parse: func(s *Handler, d *caddyfile.Dispenser) (err error) {
			*field(s), err = directive.Methods(d)
			return err
		},
		fill:  func(s *Handler) { *field(s) = directive.NormalMethods(*field(s)) },
		check: func(s *Handler) error { return directive.CheckMethods(name, *field(s)) },
	}
}

func checkPrefix(prefix string) error {
	start, _, many := strings.Cut(prefix, "{")
	_, err := queuename.Parse(prefix)
	switch {
	case err != nil:
		return fmt.Errorf("prefix %q: %w", prefix, err)
	case prefix == "":
		return errors.New("prefix: expected a text; leave prefix out for " + defaultPrefix)
	// A placeholder may have a slash, as {http.request.remote.host/32,64}; values are escaped.
	case strings.ContainsAny(queueview.Placeholder.ReplaceAllString(prefix, ""), `/\`):
		return fmt.Errorf("prefix %q: expected a text without a path separator; the directory is set by path", prefix)
	case serializer.AmbiguousQueueName(prefix):
		return fmt.Errorf("prefix %q: it must not end in four zeros and a digit, for that is how timestamps start", prefix)
	case strings.HasPrefix(prefix, serializer.ReservedPrefix), many && start != "" && strings.HasPrefix(serializer.ReservedPrefix, start): //nolint:gocritic // a value may make it one of these
		return fmt.Errorf("prefix %q: names that start with .orderly- are the queue's own files", prefix)
	}
	return nil
}

func checkErrorResponse(r *ErrorResponse) error {
	if r == nil {
		return nil
	}
	if strings.TrimSpace(r.ContentType) == "" || strings.TrimSpace(r.Body) == "" {
		return errors.New("error_response: expected a MIME type and a body; leave both blank to take an earlier one back")
	}
	if strings.ContainsAny(r.ContentType, "\r\n") || !strings.Contains(r.ContentType, "/") {
		return fmt.Errorf("error_response: %q is not a MIME type; expected one such as application/json", r.ContentType)
	}
	return nil
}
