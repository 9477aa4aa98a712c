package test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/testtls"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	caddyetcd "github.com/orderly-http/caddy-orderly/modules/etcd"
	"github.com/orderly-http/caddy-orderly/modules/internal/enginesettings"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// demandLogin makes a member demand a login, and grants only the rights that the engine
// needs.
func demandLogin(t *testing.T, m *testetcd.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	must(t, testetcd.DemandLogin(ctx, m.Client(t), etcd.DefaultNamespace))
}

// openModule makes an engine as Caddy does.
func openModule(t *testing.T, module *caddyetcd.Engine) *serializer.Engine {
	t.Helper()
	must(t, module.Provision(caddy.Context{}))
	store, err := module.Open("", slog.New(slog.DiscardHandler))
	must(t, err)
	e := serializer.New(store, serializer.Options{})
	t.Cleanup(func() { e.Close() })
	return e
}

// Each kind of connection error must be recognizable in the log. Bug: all of them read
// "no member answered within 1s: context deadline exceeded". And server_name had no
// effect: the endpoint's name was checked instead.
func TestConnectionFaults(t *testing.T) {
	t.Parallel()
	member, memberKey := testtls.SelfSigned(t, []string{"etcd.example"})
	client, clientKey := testtls.SelfSigned(t, nil)
	other, otherKey := testtls.SelfSigned(t, nil)
	tlsFlags := []string{"--cert-file", member, "--key-file", memberKey, "--enable-grpc-gateway=false"}
	plain, login := testetcd.Start(t, testetcd.Own), testetcd.Start(t, testetcd.Own)
	https := testetcd.Prepare(t, testetcd.Own, 1, tlsFlags...)[0]
	strict := testetcd.Prepare(t, testetcd.Own, 1, append(tlsFlags, "--client-cert-auth", "--trusted-ca-file", client)...)[0]
	operator, err := transport.TLSInfo{CertFile: client, KeyFile: clientKey, InsecureSkipVerify: true}.ClientConfig()
	must(t, err)
	for _, m := range []*testetcd.Server{https, strict} {
		m.TLS = operator
		m.Run()
		m.AwaitAnswer()
	}
	demandLogin(t, strict)
	demandLogin(t, login)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { silent.Close() })

	trust := func(name string) *enginesettings.TLS {
		return &enginesettings.TLS{CA: member, ServerName: name}
	}
	withCertificate := func(cert, key string) *enginesettings.TLS {
		return &enginesettings.TLS{CA: member, ServerName: "etcd.example", Cert: cert, Key: key}
	}
	for _, test := range []struct {
		name   string
		engine caddyetcd.Engine
		want   []string // none: it works
	}{
		{"plain", caddyetcd.Engine{Endpoints: []string{plain.URL}}, nil},
		{"server_name of the certificate", caddyetcd.Engine{Endpoints: []string{https.URL}, Common: enginesettings.Common{TLS: trust("etcd.example")}}, nil},
		{"another server_name", caddyetcd.Engine{Endpoints: []string{https.URL}, Common: enginesettings.Common{TLS: trust("other.example")}},
			[]string{"the member's certificate is not trusted", "x509: certificate is valid for etcd.example, not other.example"}},
		{"no server_name", caddyetcd.Engine{Endpoints: []string{https.URL}, Common: enginesettings.Common{TLS: trust("")}},
			[]string{"the member's certificate is not trusted", "x509: cannot validate certificate for 127.0.0.1"}},
		{"unknown authority", caddyetcd.Engine{Endpoints: []string{https.URL}, Common: enginesettings.Common{TLS: &enginesettings.TLS{ServerName: "etcd.example"}}},
			[]string{"the member's certificate is not trusted", "x509: certificate signed by unknown authority"}},
		{"client certificate and login", caddyetcd.Engine{Endpoints: []string{strict.URL}, Common: enginesettings.Common{TLS: withCertificate(client, clientKey), Username: "orderly", Password: "secret"}}, nil},
		{"no client certificate", caddyetcd.Engine{Endpoints: []string{strict.URL}, Common: enginesettings.Common{TLS: trust("etcd.example")}},
			[]string{"the member demands a client certificate"}},
		{"client certificate of another authority", caddyetcd.Engine{Endpoints: []string{strict.URL}, Common: enginesettings.Common{TLS: withCertificate(other, otherKey)}},
			[]string{"client certificate"}},
		{"http where https is spoken", caddyetcd.Engine{Endpoints: []string{strings.Replace(https.URL, "https:", "http:", 1)}},
			[]string{"it may speak https, the endpoint says http"}},
		{"https where http is spoken", caddyetcd.Engine{Endpoints: []string{strings.Replace(plain.URL, "http:", "https:", 1)}},
			[]string{"speak http, the endpoint says https"}},
		{"nobody there", caddyetcd.Engine{Endpoints: []string{"http://" + testprocess.FreeAddr(t)}}, []string{"connection refused"}},
		{"no such name", caddyetcd.Engine{Endpoints: []string{"http://etcd.invalid:2379"}}, []string{"lookup etcd.invalid"}},
		// Bug: from the third second on, it read as if the member spoke the other protocol.
		{"silence, http", caddyetcd.Engine{Endpoints: []string{"http://" + silent.Addr().String()}}, []string{"the member has not answered in time"}},
		{"silence, https", caddyetcd.Engine{Endpoints: []string{"https://" + silent.Addr().String()}}, []string{"the member has not answered in time"}},
		{"login", caddyetcd.Engine{Endpoints: []string{login.URL}, Common: enginesettings.Common{Username: "orderly", Password: "secret"}}, nil},
		{"wrong password", caddyetcd.Engine{Endpoints: []string{login.URL}, Common: enginesettings.Common{Username: "orderly", Password: "wrong"}},
			[]string{`logging in as "orderly"`, "authentication failed"}},
		{"no login", caddyetcd.Engine{Endpoints: []string{login.URL}}, []string{"etcd demands a username and a password"}},
		{"no rights", caddyetcd.Engine{Endpoints: []string{login.URL}, Common: enginesettings.Common{Username: "orderly", Password: "secret", Lease: enginesettings.Lease{Namespace: "elsewhere"}}},
			[]string{"the user has no right to read and write the namespace"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.engine.TTL = caddy.Duration(5 * time.Second)
			e := openModule(t, &test.engine)
			// A busy machine may be too slow to enter, or to find the cause, at the first attempt.
			wait.Eventually(t, fmt.Sprintf("the error says %q", test.want), func() error {
				turn, err := e.Enter(t.Context(), serializer.Arrival{Queue: "a_", Timeout: 20 * time.Second})
				switch {
				case err == nil:
					turn.Leave()
				case !errors.Is(err, serializer.ErrStorage):
					t.Fatalf("got %v; want a refusal for the storage", err)
				}
				if entered := err == nil; entered != (test.want == nil) || !entered && !says(err, append(test.want, test.engine.Endpoints[0])) {
					return fmt.Errorf("got %w", err)
				}
				return nil
			})
		})
	}
}

// says reports whether an error contains all of the texts.
func says(err error, texts []string) bool {
	return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(err.Error(), text) })
}
