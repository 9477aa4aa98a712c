package test

import (
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.etcd.io/etcd/client/pkg/v3/transport"

	caddyetcd "github.com/orderly-http/caddy-orderly/modules/etcd"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// The cluster requires client certificates and a login, and grants only the rights that
// the engine needs.
func TestTLSAndLogin(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	a.issue(t, "member", &x509.Certificate{DNSNames: []string{"etcd.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: usage})
	a.issue(t, "client", &x509.Certificate{ExtKeyUsage: usage})

	m := secured(t, transport.TLSInfo{
		CertFile: a.file("member.pem"), KeyFile: a.file("member.key"), TrustedCAFile: a.file("ca.pem"), ClientCertAuth: true,
	})
	m.Start(t)
	client := transport.TLSInfo{CertFile: a.file("client.pem"), KeyFile: a.file("client.key"), TrustedCAFile: a.file("ca.pem")}
	var err error
	if m.TLS, err = client.ClientConfig(); err != nil {
		t.Fatal(err)
	}
	enableLogin(t, m)

	const ttl = 5 * time.Second
	settings := func() *caddyetcd.Engine {
		return &caddyetcd.Engine{
			Endpoints: []string{m.URL}, Username: "orderly", Password: "secret", TTL: caddy.Duration(ttl),
			TLS: &caddyetcd.TLS{CA: a.file("ca.pem"), Cert: a.file("client.pem"), Key: a.file("client.key"), ServerName: "etcd.example"},
		}
	}
	here, there := openModule(t, settings()), openModule(t, settings())
	for _, e := range []*serializer.Engine{here, there} {
		enterSoon(t, e) // a login takes long on a busy machine
	}
	holder, err := here.Enter(t.Context(), arrival)
	if err != nil {
		t.Fatal(err)
	}
	waiting := enterLater(t, there, 2)
	evicted := enterLater(t, there, 3)
	if err := here.Evict(t.Context(), arrival.Queue, tokenOfLast(t, here)); err != nil {
		t.Fatal(err)
	}
	if err := (<-evicted).err; !errors.Is(err, serializer.ErrEvicted) {
		t.Errorf("evicted: %v", err)
	}
	time.Sleep(ttl + time.Second) // longer than the lease: keep-alives work, too
	holder.Leave()
	if r := <-waiting; r.err != nil {
		t.Error(r.err)
	} else {
		r.turn.Leave()
	}
}
