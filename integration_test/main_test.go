//go:build unix

// Package integration_test drives real Caddy processes with the plugin over HTTP. Behind the queue stands an upstream in the test
// process that notes on the monotonic clock who was inside when.
package integration_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	_ "github.com/orderly-http/caddy-orderly"
	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// The test binary is Caddy as well; see package testcaddy.
func init() { testcaddy.RunIfCaddy() }

func TestMain(m *testing.M) {
	wait.InParallel()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "orderly")
	defer os.RemoveAll(dir)
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), makeCertificate(dir)) // other users run what is in it, too
	}
	if err == nil {
		testcaddy.Program, err = program(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	chromiums.dir, chromiums.running = dir, make(map[string]*chromium)
	defer closeChromiums()
	return m.Run()
}

// program is the Caddy under test. The test binary itself is in a directory that
// other users may not pass.
func program(dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "caddy")
	if os.Link(self, binary) == nil {
		return binary, nil
	}
	content, err := os.ReadFile(self) // on another file system
	if err != nil {
		return "", err
	}
	return binary, os.WriteFile(binary, content, 0o755)
}

// certificate names the files of the certificate of sites with TLS. Caddy could make its
// own, but not at once.
var certificate struct{ cert, key string }

// makeCertificate writes the certificate of Go's test servers, which are for others, but clients here do not check that.
func makeCertificate(dir string) error {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	certificate.cert, certificate.key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	return errors.Join(err, os.WriteFile(certificate.cert, cert, 0o644),
		os.WriteFile(certificate.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o644))
}
