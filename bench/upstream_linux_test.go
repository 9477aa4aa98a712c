package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

// startBackend runs a server that answers every request after as many nanoseconds as the query's ns
// says. It does next to nothing, so that what stands in front of it is measured.
func startBackend(b *testing.B) (addr string) {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	b.Cleanup(func() { _ = listener.Close() })
	server := &fasthttp.Server{Handler: serve, NoDefaultServerHeader: true, NoDefaultDate: true}
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String()
}

func serve(r *fasthttp.RequestCtx) {
	if hold := r.QueryArgs().GetUintOrZero("ns"); hold > 0 {
		// A timer of Go's runtime may be a millisecond late where nothing else happens.
		pause := unix.NsecToTimespec(int64(hold))
		_ = unix.Nanosleep(&pause, nil)
	}
	r.SetBodyString("ok")
}

// startPHP runs php-fpm with the script work.php, which uses the processor for as long as the query's
// ns says, as applications do.
func startPHP(b *testing.B, parent string) *server {
	b.Helper()
	s := startServer(b, config{Program: "php-fpm"}, parent)
	script, err := templates.ReadFile("configs/work.php")
	must(b, err)
	must(b, os.WriteFile(filepath.Join(s.Dir, "work.php"), script, 0o644))
	return s
}
