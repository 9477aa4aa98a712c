package redis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// A server that could lose tickets by itself, or has no rights for us, is refused at once,
// and the message says what to do.
func TestUnsuitable(t *testing.T) {
	full := []string{"--maxmemory", "64mb"}
	all := []string{"on", ">secret", "~{orderly}:*", "&{orderly}:*"}
	for name, test := range map[string]struct {
		args    []string
		options Options
		want    string // empty: it is suitable
	}{
		"noeviction":       {append(full, "--maxmemory-policy", "noeviction"), Options{}, ""},
		"volatile":         {append(full, "--maxmemory-policy", "volatile-lru"), Options{}, ""},
		"no bound":         {[]string{"--maxmemory-policy", "allkeys-lru"}, Options{}, ""},
		"eviction":         {append(full, "--maxmemory-policy", "allkeys-lru"), Options{}, "with maxmemory-policy allkeys-lru, it drops keys"},
		"random eviction":  {append(full, "--maxmemory-policy", "allkeys-random"), Options{}, "set noeviction"},
		"cluster":          {[]string{"--cluster-enabled", "yes"}, Options{}, "it belongs to a cluster; expected a single server"},
		"enough rights":    {append(append([]string{"--user", "u"}, all...), strings.Fields(commandsNeeded)...), Options{Username: "u", Password: "secret"}, ""},
		"no INFO":          {append(append([]string{"--user", "u"}, all...), "+@all", "-info"), Options{Username: "u", Password: "secret"}, `the user "u" lacks a right; expected at least ~{orderly}:* &{orderly}:* ` + commandsNeeded},
		"no EVALSHA":       {append(append([]string{"--user", "u"}, all...), "+@all", "-evalsha"), Options{Username: "u", Password: "secret"}, "lacks a right"},
		"no PUBLISH":       {append(append([]string{"--user", "u"}, all...), "+@all", "-publish"), Options{Username: "u", Password: "secret"}, "lacks a right"},
		"no SUBSCRIBE":     {append(append([]string{"--user", "u"}, all...), "+@all", "-subscribe"), Options{Username: "u", Password: "secret"}, "lacks a right"},
		"no XADD":          {append(append([]string{"--user", "u"}, all...), "+@all", "-xadd"), Options{Username: "u", Password: "secret"}, "lacks a right"},
		"other keys":       {[]string{"--user", "u", "on", ">secret", "~x*", "&*", "+@all"}, Options{Username: "u", Password: "secret"}, "lacks a right"},
		"other channels":   {[]string{"--user", "u", "on", ">secret", "~*", "&x*", "+@all"}, Options{Username: "u", Password: "secret"}, "lacks a right"},
		"another database": {nil, Options{Database: 3}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, test.args...)
			test.options.Addresses, test.options.TTL = []string{s.address}, 2*time.Second
			st, err := Open(test.options)
			if test.want == "" {
				must(t, err)
				must(t, st.Close())
				enterSoon(t, open(t, test.options, s.address))
				return
			}
			if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; expected %q", err, test.want)
			}
		})
	}
}

// A server that cannot be reached, or refuses the password, does not prevent the start.
// Arrivals are refused until that has changed.
func TestPasswordChanged(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	change := func(password string) {
		s.do("ACL", "SETUSER", "orderly", "on", "resetpass", ">"+password, "~{orderly}:*", "&{orderly}:*", "+@all")
		s.do("CLIENT", "KILL", "USER", "orderly")
	}
	s.do("ACL", "SETUSER", "default", "off")
	e := open(t, Options{Username: "orderly", Password: "secret"}, s.address)
	wantRefused(t, e, "the username or the password is refused")
	wantRefused(t, open(t, Options{}, s.address), "a password is demanded")
	change("secret")
	enterSoon(t, e)
	holder := enter(t, e)
	change("other")
	wait.Until(t, "the holder is told to stop", func() bool { return len(holder.revoked) > 0 })
	holder.turn.Leave()
	wantRefused(t, e, "the username or the password is refused")
	change("secret")
	enterSoon(t, e)
	wantRefused(t, open(t, Options{}, freeAddress(t)), "connection refused")
}

// When the server's memory is full, arrivals are refused. Turns end, and pass on.
func TestMemoryFull(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	engines := opened(t, 2, s.address)
	holder, waiter := enter(t, engines[0]), join(t, engines[1])
	s.do("CONFIG", "SET", "maxmemory", "1")
	wantRefused(t, engines[0], "the server's memory is full")
	holder.turn.Leave()
	waiter.enter(t).Leave()
	time.Sleep(ttl) // sessions are renewed, too
	if len(waiter.revoked)+len(holder.revoked) > 0 {
		t.Error("revoked")
	}
	s.do("CONFIG", "SET", "maxmemory", "0")
	enterSoon(t, engines[0])
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	cert, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	plain := startServer(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", keyFile, "--tls-ca-cert-file", cert)
	pair, err := tls.LoadX509KeyPair(cert, keyFile)
	must(t, err)
	trusted := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	must(t, err)
	trusted.AddCert(parsed)
	config := &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{pair}}
	enterSoon(t, open(t, Options{TLS: config}, address))
	wantRefused(t, open(t, Options{TLS: new(tls.Config)}, address), "certificate")
	wantRefused(t, open(t, Options{TLS: config}, plain.address), "without TLS")
}
