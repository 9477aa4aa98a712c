//go:build linux

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

// Backend answers every request after the time that it asks for. It does next to
// nothing, so that what stands in front of it is measured.
type Backend struct{ Addr string }

// StartBackend runs one until ctx ends.
func StartBackend(ctx context.Context) (*Backend, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the backend: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	b := &Backend{Addr: listener.Addr().String()}
	server := &fasthttp.Server{Handler: serve, NoDefaultServerHeader: true, NoDefaultDate: true}
	go func() { _ = server.Serve(listener) }()
	return b, nil
}

func serve(r *fasthttp.RequestCtx) {
	if hold := r.QueryArgs().GetUintOrZero("ns"); hold > 0 {
		// A timer of Go's runtime may be a millisecond late where nothing else happens.
		pause := unix.NsecToTimespec(int64(hold))
		_ = unix.Nanosleep(&pause, nil)
	}
	r.SetBodyString("ok")
}

// Path is the path of a request that takes so long.
func (b *Backend) Path(hold time.Duration) string { return fmt.Sprintf("/?ns=%d", hold) }

// PHP is php-fpm with a script that uses the processor for as long as it is told, as
// applications do.
type PHP struct{ *Server }

const phpScript = "work.php"

// StartPHP runs it.
func StartPHP(ctx context.Context, parent string) (PHP, error) {
	s, err := Start(ctx, Config{Program: "php-fpm"}, parent)
	if err != nil {
		return PHP{}, err
	}
	script, err := configs.ReadFile("configs/" + phpScript)
	if err = errors.Join(err, os.WriteFile(filepath.Join(s.Dir, phpScript), script, 0o644)); err != nil {
		s.Stop()
		return PHP{}, fmt.Errorf("writing the script: %w", err)
	}
	return PHP{s}, nil
}

// Path is the path of a request that takes so long.
func (p PHP) Path(hold time.Duration) string { return fmt.Sprintf("/%s?ns=%d", phpScript, hold) }
