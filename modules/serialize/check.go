package serialize

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// The checks below are for both the Caddyfile, where the error names the line,
// and JSON. Each error says what is allowed.

// check refuses settings that make no sense.
func (s *Handler) check() error {
	return errors.Join(
		checkPrefix(s.Prefix),
		checkMethods("skip_methods", s.SkipMethods),
		checkMethods("shared_methods", s.SharedMethods),
		directive.CheckDuration("timeout", time.Duration(*s.Timeout)),
		directive.CheckDuration("hold_timeout", time.Duration(s.HoldTimeout)),
		directive.CheckCount("queue_length", s.QueueLength, 0),
		checkWhenFull(s.WhenFull, s.QueueLength),
		directive.CheckCount("concurrency", s.Concurrency, 1),
		checkErrorCode(s.ErrorCode),
		checkErrorResponse(s.ErrorResponse),
		checkOnDisconnect(s.OnDisconnect),
		checkSize("buffer", *s.Buffer, maxBuffer, "from 0 to 1GiB, such as 64KiB"),
		checkSize("buffer_disk", *s.BufferDisk, maxBufferDisk, "from 0 to 1TiB, such as 64MiB"),
		checkSize("response_buffer", *s.ResponseBuffer, maxResponseBuffer, "from 0 to 1GiB, such as 256KiB"),
		checkWaitingPage(s.WaitingPage),
	)
}

// expandPath fills in the placeholders of a lock directory's path. An empty one
// would name another directory: `{env.NOPE}/q` is not meant to be `/q`.
func expandPath(path string) (string, error) {
	if path == "" {
		return defaultPath(), nil
	}
	expanded, err := caddy.NewReplacer().ReplaceOrErr(path, true, true)
	if err != nil {
		return "", fmt.Errorf("path %q: %w; expected placeholders that have a value when the configuration is loaded", path, err)
	}
	return expanded, checkPath(expanded)
}

func checkPath(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("path %q: expected an absolute path, such as /var/lib/caddy/queues; "+
			"a relative one depends on where Caddy is started", path)
	}
	return nil
}

func checkPrefix(prefix string) error {
	switch {
	// A placeholder may have a slash, as {http.request.remote.host/32,64}; values are escaped.
	case strings.ContainsAny(queueapi.Placeholder.ReplaceAllString(prefix, ""), `/\`):
		return fmt.Errorf("prefix %q: expected a text without a path separator; the directory is set by path", prefix)
	case serializer.AmbiguousQueueName(prefix):
		return fmt.Errorf("prefix %q: it must not end in four zeros and a digit, for that is how timestamps start", prefix)
	case strings.HasPrefix(prefix, ".orderly-"):
		return fmt.Errorf("prefix %q: names that start with .orderly- are the queue's own files", prefix)
	}
	return nil
}

func checkMethods(what string, methods []string) error {
	for _, method := range methods {
		if strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return fmt.Errorf("%s: %q is not a request method; expected names such as GET, separated by spaces or commas", what, method)
		}
	}
	return nil
}

func checkErrorCode(status int) error {
	if status < 400 || status > 599 {
		return fmt.Errorf("error_code %d: expected a status from 400 to 599", status)
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

func checkWhenFull(who string, queueLength int) error {
	switch {
	case who != dropNewest && who != dropOldest:
		return fmt.Errorf("when_full %q: expected drop_newest or drop_oldest", who)
	case who == dropOldest && queueLength < 1:
		return errors.New("when_full drop_oldest: it needs a queue_length of 1 or more; with 1, the latest request wins")
	}
	return nil
}

func checkOnDisconnect(what string) error {
	if what != onDisconnectFinish && what != onDisconnectCancel {
		return fmt.Errorf("on_disconnect %q: expected finish or cancel", what)
	}
	return nil
}

func checkSize(name string, size, most Size, expected string) error {
	if size < 0 || size > most {
		return fmt.Errorf("%s %d: expected a size %s", name, size, expected)
	}
	return nil
}
