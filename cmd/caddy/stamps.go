//go:build stamps

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Measurements need the handlers stamp and link, nobody else does. So only a build with the
// tag "stamps" has them.
func init() {
	caddy.RegisterModule(new(stamps))
	httpcaddyfile.RegisterHandlerDirective("stamp", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		s := new(stamps)
		if h.Next(); !h.AllArgs(&s.File) {
			return nil, h.ArgErr()
		}
		return s, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("stamp", httpcaddyfile.Before, "reverse_proxy")
	caddy.RegisterModule(new(links))
	httpcaddyfile.RegisterHandlerDirective("link", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		l := new(links)
		if h.Next(); !h.AllArgs(&l.Dir) {
			return nil, h.ArgErr()
		}
		return l, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("link", httpcaddyfile.Before, "respond")
}

// stamps notes when the handlers after it are called, and when they return: two numbers of
// 64 bits, little-endian, in nanoseconds. It writes them in batches. So the last may be
// missing in the file.
type stamps struct {
	File string `json:"file"`

	mu  sync.Mutex
	out *bufio.Writer
}

// CaddyModule implements [caddy.Module].
func (*stamps) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.stamp", New: func() caddy.Module { return new(stamps) }}
}

// Provision implements [caddy.Provisioner].
func (s *stamps) Provision(caddy.Context) error {
	file, err := os.Create(s.File)
	if err != nil {
		return fmt.Errorf("creating the file of stamps: %w", err)
	}
	s.out = bufio.NewWriterSize(file, 256)
	return nil
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (s *stamps) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	begin := time.Now()
	err := next.ServeHTTP(w, r)
	end := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = binary.Write(s.out, binary.LittleEndian, [2]int64{begin.UnixNano(), end.UnixNano()}) // a lost one only makes a longer gap
	return err
}

// links gives a file another name before the next handlers, and removes it after them. A queue
// by lock files cannot do with less for a request, and does much more.
type links struct {
	Dir string `json:"dir"`

	last atomic.Int64
}

// CaddyModule implements [caddy.Module].
func (*links) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.link", New: func() caddy.Module { return new(links) }}
}

func (l *links) file() string { return filepath.Join(l.Dir, "file") }

// Provision implements [caddy.Provisioner].
func (l *links) Provision(caddy.Context) error {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return fmt.Errorf("making the directory of links: %w", err)
	}
	return os.WriteFile(l.file(), nil, 0o600)
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (l *links) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	link := fmt.Sprintf("%s/%020d-%s", l.Dir, l.last.Add(1), r.RemoteAddr) // as long as a lock file's name
	if err := os.Link(l.file(), link); err != nil {
		return err
	}
	return errors.Join(next.ServeHTTP(w, r), os.Remove(link))
}
