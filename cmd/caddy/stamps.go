//go:build stamps

package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Measurements need the handler stamp, nobody else does. So only a build with the tag "stamps"
// has it.
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
