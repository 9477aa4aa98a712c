//go:build linux

package server

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

// Upstream stands behind the servers. It notes when each request began and ended there.
type Upstream interface {
	Path(hold time.Duration) string // of a request that takes so long
	Hits() ([]Hit, error)           // since it was last asked
}

// Hit is a request's time upstream, in nanoseconds on one clock.
type Hit struct{ Begin, End int64 }

// Gaps are the times from the end of a hit to the begin of the next, in order of
// length. If two were inside at once, the first is less than nothing.
func Gaps(hits []Hit) (gaps []time.Duration) {
	slices.SortFunc(hits, func(a, b Hit) int { return cmp.Compare(a.Begin, b.Begin) })
	for i := 1; i < len(hits); i++ {
		gaps = append(gaps, time.Duration(hits[i].Begin-hits[i-1].End))
	}
	slices.Sort(gaps)
	return gaps
}

// Backend answers every request after the time that it asks for. It does next to
// nothing, so that what stands in front of it is measured.
type Backend struct {
	Addr string

	mu   sync.Mutex
	hits []Hit
}

// StartBackend runs one until ctx ends.
func StartBackend(ctx context.Context) (*Backend, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the backend: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	b := &Backend{Addr: listener.Addr().String()}
	server := &fasthttp.Server{Handler: b.serve, NoDefaultServerHeader: true, NoDefaultDate: true}
	go func() { _ = server.Serve(listener) }()
	return b, nil
}

func (b *Backend) serve(r *fasthttp.RequestCtx) {
	v := Hit{Begin: time.Now().UnixNano()}
	if hold := r.QueryArgs().GetUintOrZero("ns"); hold > 0 {
		// A timer of Go's runtime may be a millisecond late where nothing else happens.
		pause := unix.NsecToTimespec(int64(hold))
		_ = unix.Nanosleep(&pause, nil)
	}
	v.End = time.Now().UnixNano() // before the answer, after which the next may be sent in
	b.mu.Lock()
	b.hits = append(b.hits, v)
	b.mu.Unlock()
	r.SetBodyString("ok")
}

// Path is the path of a request that takes so long.
func (b *Backend) Path(hold time.Duration) string { return fmt.Sprintf("/?ns=%d", hold) }

// Hits are those since it was last asked.
func (b *Backend) Hits() ([]Hit, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	hits := b.hits
	b.hits = nil
	return hits, nil
}

// PHP is php-fpm with a script that uses the processor for as long as it is told, as
// applications do.
type PHP struct{ *Server }

const (
	phpScript = "work.php"
	phpHits   = "hits" // that the script writes
)

// StartPHP runs it.
func StartPHP(ctx context.Context, parent string) (PHP, error) {
	s, err := Start(ctx, Config{Program: "php-fpm"}, parent)
	if err != nil {
		return PHP{}, err
	}
	script, err := configs.ReadFile("configs/" + phpScript)
	err = errors.Join(err,
		os.WriteFile(filepath.Join(s.Dir, phpScript), script, 0o644),
		os.WriteFile(filepath.Join(s.Dir, phpHits), nil, 0o600),
		os.Chmod(filepath.Join(s.Dir, phpHits), 0o666)) // it works as another user
	if err != nil {
		s.Stop()
		return PHP{}, fmt.Errorf("writing the script: %w", err)
	}
	return PHP{s}, nil
}

// Path is the path of a request that takes so long.
func (p PHP) Path(hold time.Duration) string { return fmt.Sprintf("/%s?ns=%d", phpScript, hold) }

// Hits are those since it was last asked.
func (p PHP) Hits() ([]Hit, error) {
	file := filepath.Join(p.Dir, phpHits)
	hits, err := readHits(file)
	if err != nil {
		return nil, err
	}
	return hits, os.Truncate(file, 0)
}

// readHits reads pairs of numbers of 64 bits, little-endian.
func readHits(file string) ([]Hit, error) {
	text, err := os.ReadFile(file)
	hits := make([]Hit, len(text)/16)
	if err == nil {
		_, err = binary.Decode(text, binary.LittleEndian, hits)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the hits: %w", err)
	}
	return hits, nil
}
