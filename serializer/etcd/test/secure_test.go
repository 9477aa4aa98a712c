package test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	caddyetcd "github.com/orderly-http/caddy-orderly/modules/etcd"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// authority signs certificates.
type authority struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.certificate, a.key = a.issue(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue writes <name>.pem and <name>.key.
func (a *authority) issue(t *testing.T, name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.Subject = pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name+".pem", "CERTIFICATE", der)
	a.write(t, name+".key", "EC PRIVATE KEY", private)
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// A cluster that wants certificates of its clients, a login, and gives no more
// rights than the engine needs.
func TestTLSAndLogin(t *testing.T) {
	a := newAuthority(t)
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	a.issue(t, "member", &x509.Certificate{DNSNames: []string{"etcd.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: usage})
	a.issue(t, "client", &x509.Certificate{ExtKeyUsage: usage})

	m := newMember(t)
	m.config.BcryptCost = 4
	m.config.ListenClientUrls[0].Scheme, m.config.AdvertiseClientUrls[0].Scheme = "https", "https"
	m.config.ClientTLSInfo = transport.TLSInfo{
		CertFile: a.file("member.pem"), KeyFile: a.file("member.key"), TrustedCAFile: a.file("ca.pem"), ClientCertAuth: true,
	}
	m.url = m.config.ListenClientUrls[0].String()
	m.start(t)
	t.Cleanup(m.stop)
	enableLogin(t, m, a)

	t.Setenv("ORDERLY_PASSWORD", "secret")
	const ttl = 5 * time.Second
	settings := func() *caddyetcd.Engine {
		return &caddyetcd.Engine{
			Endpoints: []string{m.url}, Username: "orderly", Password: "{env.ORDERLY_PASSWORD}", TTL: caddy.Duration(ttl),
			TLS: &caddyetcd.TLS{CA: a.file("ca.pem"), Cert: a.file("client.pem"), Key: a.file("client.key"), ServerName: "etcd.example"},
		}
	}
	here, there := openModule(t, settings()), openModule(t, settings())
	for _, e := range []serializer.Engine{here, there} {
		enterSoon(t, e, "a_") // logging in takes long on a busy machine
	}
	holder := enter(t, here, arrival("a_"))
	waiting := join(t, there, arrival("a_"))
	evicted := join(t, there, arrival("a_"))
	if err := here.Evict(context.Background(), "a_", tokenOf(t, queueOf(t, here, "a_").Tickets[2])); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, (<-evicted).err, serializer.ReasonEvicted, serializer.ErrEvicted)
	time.Sleep(ttl + time.Second) // longer than the lease: keep-alives work, too
	holder.Leave()
	(<-waiting).leave(t)

	wrong := settings()
	wrong.Password = "wrong"
	_, err := openModule(t, wrong).Enter(context.Background(), arrival("a_"))
	wantRefusal(t, err, serializer.ReasonStorage, serializer.ErrStorage)
	stranger := settings()
	stranger.TLS.Cert, stranger.TLS.Key = "", ""
	_, err = openModule(t, stranger).Enter(context.Background(), arrival("a_"))
	wantRefusal(t, err, serializer.ReasonStorage, serializer.ErrStorage)
	elsewhere := settings()
	elsewhere.Namespace = "elsewhere"
	_, err = openModule(t, elsewhere).Enter(context.Background(), arrival("a_"))
	wantRefusal(t, err, serializer.ReasonStorage, serializer.ErrStorage)
}

// openModule makes an engine as Caddy does.
func openModule(t *testing.T, module *caddyetcd.Engine) serializer.Engine {
	t.Helper()
	if err := module.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	e, err := module.Open("", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// enableLogin makes the users root, and orderly with rights on one namespace.
func enableLogin(t *testing.T, m *member, a *authority) {
	t.Helper()
	info := transport.TLSInfo{CertFile: a.file("client.pem"), KeyFile: a.file("client.key"), TrustedCAFile: a.file("ca.pem")}
	config, err := info.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.url}, TLS: config, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	const namespace = "orderly/"
	for _, err := range []error{
		second(c.UserAdd(ctx, "root", "root")),
		second(c.UserGrantRole(ctx, "root", "root")),
		second(c.RoleAdd(ctx, "orderly")),
		second(c.RoleGrantPermission(ctx, "orderly", namespace, clientv3.GetPrefixRangeEnd(namespace), clientv3.PermissionType(clientv3.PermReadWrite))),
		second(c.UserAdd(ctx, "orderly", "secret")),
		second(c.UserGrantRole(ctx, "orderly", "orderly")),
		second(c.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
