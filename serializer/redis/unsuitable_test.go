package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/testtls"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// suitableFor asks the servers of a store.
func suitableFor(t *testing.T, o Options) error {
	t.Helper()
	st, err := Open(o)
	testlease.Must(t, err)
	testlease.NewEngine(t, st)
	return st.Suitable(t.Context())
}

// A server that could lose tickets by itself, or has no rights for us, is refused at once,
// and the message says what to do.
func TestUnsuitable(t *testing.T) {
	full := []string{"--maxmemory", "64mb"}
	all := append([]string{"--user", "u", "on", ">secret"}, strings.Fields(keysOf("orderly", 0).rights())...)
	for name, test := range map[string]struct {
		args    []string
		options Options
		want    string // empty: it is suitable
	}{
		"noeviction":        {append(full, "--maxmemory-policy", "noeviction"), Options{}, ""},
		"volatile":          {append(full, "--maxmemory-policy", "volatile-lru"), Options{}, ""},
		"no bound":          {[]string{"--maxmemory-policy", "allkeys-lru"}, Options{}, ""},
		"eviction":          {append(full, "--maxmemory-policy", "allkeys-lru"), Options{}, "with maxmemory-policy allkeys-lru, it drops keys"},
		"random eviction":   {append(full, "--maxmemory-policy", "allkeys-random"), Options{}, "set noeviction"},
		"cluster":           {[]string{"--cluster-enabled", "yes"}, Options{}, "its mode is cluster; expected a single server"},
		"without HELLO":     {[]string{"--rename-command", "HELLO", "", "--requirepass", "secret"}, Options{Password: "secret"}, ""}, // RESP2 alone
		"enough rights":     {all, Options{Username: "u", Password: "secret"}, ""},
		"other keys":        {[]string{"--user", "u", "on", ">secret", "~x*", "&*", "+@all"}, Options{Username: "u", Password: "secret"}, "lacks a right"},
		"other channels":    {[]string{"--user", "u", "on", ">secret", "~*", "&x*", "+@all"}, Options{Username: "u", Password: "secret"}, "lacks a right"},
		"another database":  {nil, Options{Database: 3}, ""},
		"no such database":  {nil, Options{Database: 16}, "it has no such database"}, // bug: each request was refused, and not the load
		"database, cluster": {[]string{"--cluster-enabled", "yes"}, Options{Database: 3}, "as one of a cluster"},
		"its rights":        {append(all, "-select"), Options{Username: "u", Password: "secret", Database: 3}, "'select'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, test.args...)
			test.options.Addresses = []string{s.address}
			err := suitableFor(t, test.options)
			if test.want == "" {
				testlease.Must(t, err)
				testlease.EnterSoon(t, open(t, test.options, s.address))
				return
			}
			if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; expected %q", err, test.want)
			}
		})
	}
}

// A silent server beside the master, which takes all the time of an answer, hides nothing.
func TestUnsuitableBesideSilence(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--user", "u", "on", ">secret", "~x*", "&*", "+@all")
	st, err := Open(Options{Addresses: []string{silentAddress(t), s.address}, Username: "u", Password: "secret"})
	testlease.Must(t, err)
	testlease.NewEngine(t, st)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // less than that server may take for an answer
	defer cancel()
	err = st.Suitable(ctx)
	if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), "lacks a right") {
		t.Error(err)
	}
}

// Bug: Valkey has another name for the field, so its clusters and Sentinels were not refused.
func TestMode(t *testing.T) {
	for info, want := range map[string]string{
		"redis_version:7.0.15\r\nredis_mode:cluster":      "its mode is cluster",
		"redis_version:7.2.4\r\nserver_mode:cluster\r\n":  "its mode is cluster",
		"redis_version:7.2.4\r\nserver_mode:sentinel\r\n": "its mode is sentinel",
	} {
		if err := suitable(info); !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v; expected %q", info, err, want)
		}
	}
	testlease.Must(t, suitable("redis_version:7.2.4\r\nserver_mode:standalone\r\nmaxmemory:0\r\n"))
}

// Bug: the message did not name the command that the user may not run, if it is the script's.
// Each that the script calls is tried.
func TestRightsMissing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	commands := map[string]bool{"info": true, "evalsha": true, "subscribe": true}
	for _, call := range regexp.MustCompile(`redis\.call\('(\w+)'`).FindAllStringSubmatch(source, -1) {
		commands[strings.ToLower(call[1])] = true
	}
	if len(commands) < 20 {
		t.Errorf("the script calls only %v", commands)
	}
	for command := range commands {
		s.do("ACL", "SETUSER", command, "on", ">secret", "~{orderly}:*", "&{orderly}:*", "+@all", "-"+command)
		err := suitableFor(t, Options{Addresses: []string{s.address}, Username: command, Password: "secret"})
		if !errors.Is(err, ErrUnsuitable) {
			t.Errorf("without %s: %v", command, err)
			continue
		}
		_, detail, _ := strings.Cut(err.Error(), "; expected at least "+keysOf("orderly", 0).rights()+": ")
		if !strings.Contains(strings.ToLower(detail), command) {
			t.Errorf("the message does not name %s: %v", command, err)
		}
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
	testlease.WantRefused(t, e, "WRONGPASS")
	testlease.WantRefused(t, open(t, Options{}, s.address), "NOAUTH")
	change("secret")
	testlease.EnterSoon(t, e)
	holder := testlease.Enter(t, e)
	change("other")
	wait.Until(t, "the holder is told to stop", func() bool { return len(holder.Revoked) > 0 })
	holder.Turn.Leave()
	testlease.WantRefused(t, e, "WRONGPASS")
	change("secret")
	testlease.EnterSoon(t, e)
	testlease.WantRefused(t, open(t, Options{}, testprocess.FreeAddr(t)), "connection refused")
}

// Bug: of timeouts, only those of a context were explained.
// The texts had durations such as 666.666666ms.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	st := openStore(t, Options{TTL: 2667 * time.Millisecond}, silentAddress(t))
	t.Cleanup(func() { st.Close() })
	for name, err := range map[string]error{
		"dialing":   &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded},
		"reading":   st.servers.clients[0].Info(t.Context()).Err(),
		"a context": context.DeadlineExceeded,
	} {
		explained := st.servers.explain(fmt.Errorf("a: %w", err))
		if !strings.HasPrefix(explained.Error(), "no answer within 667ms; see to the server") {
			t.Errorf("%s: %v", name, explained)
		}
	}
}

// When the server's memory is full, arrivals are refused. Turns end, and pass on.
func TestMemoryFull(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	engines := opened(t, 2, s.address)
	holder, waiter := testlease.Enter(t, engines[0]), testlease.Join(t, engines[1])
	s.do("CONFIG", "SET", "maxmemory", "1")
	testlease.WantRefused(t, engines[0], "OOM")
	holder.Turn.Leave()
	waiter.Wait(t).Leave()
	time.Sleep(ttl) // sessions are renewed, too
	if len(waiter.Revoked)+len(holder.Revoked) > 0 {
		t.Error("revoked")
	}
	s.do("CONFIG", "SET", "maxmemory", "0")
	testlease.EnterSoon(t, engines[0])
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := testtls.SelfSigned(t, nil, net.IPv4(127, 0, 0, 1))
	address := testprocess.FreeAddr(t)
	_, port, _ := net.SplitHostPort(address)
	plain := startServer(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	pair, err := tls.LoadX509KeyPair(cert, key)
	testlease.Must(t, err)
	trusted := x509.NewCertPool()
	trusted.AddCert(pair.Leaf)
	config := &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{pair}}
	testlease.EnterSoon(t, open(t, Options{TLS: config}, address))
	testlease.WantRefused(t, open(t, Options{TLS: new(tls.Config)}, address), "certificate")
	testlease.WantRefused(t, open(t, Options{TLS: config}, plain.address), "without TLS")
}

// The server answers, but refuses writes for a while. Arrivals are refused with the reason.
// A turn passes on only within its process. If that lasts, the leases run out, with the reason,
// too. Then all goes on by itself.
func TestServerRefusesWrites(t *testing.T) {
	t.Parallel()
	const says = "NOREPLICAS"
	s := startServer(t)
	o := Options{TTL: 10 * time.Second}
	engines := []*serializer.Engine{openAtOnce(t, s, o, s.address), openAtOnce(t, s, o, s.address)}
	holder, same, other := testlease.Enter(t, engines[0]), testlease.Join(t, engines[0]), testlease.Join(t, engines[1])
	s.do("CONFIG", "SET", "min-replicas-to-write", "1")
	testlease.WantRefused(t, engines[1], says)
	holder.Turn.Leave()
	same.Wait(t)
	if err := same.WantRevoked(t, serializer.ErrLost); !strings.Contains(err.Error(), says) {
		t.Errorf("revoked with %v", err)
	}
	if err := other.End(t); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("the waiter ends with %v", err)
	}
	same.Turn.Leave()
	testlease.WantRefused(t, engines[0], says)
	s.do("CONFIG", "SET", "min-replicas-to-write", "0")
	testlease.WantGreater(t, testlease.EnterSoon(t, engines[1]), same.Turn.Token())
}
