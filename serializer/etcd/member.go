package etcd

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// member is one server of the cluster, with a client that knows only this one.
//
// Some methods of clientv3 are not used. Its login is repeated for each stream, and so for
// each keep-alive, and after a refusal by each request at once; see login. KeepAliveOnce
// asks an unreachable member again and again without a pause, and Grant chooses the ID.
// Its watches resume by themselves, even in a cluster with another history; see watch.
type member struct {
	endpoint string
	client   *clientv3.Client
	leases   pb.LeaseClient
	login    *login
	watching atomic.Pointer[watch]
}

func newMember(endpoint string, o Options) (*member, error) {
	m := &member{endpoint: endpoint, login: &login{username: o.Username, password: o.Password}}
	options := []grpc.DialOption{
		grpc.WithPerRPCCredentials(m.login),
		grpc.WithConnectParams(grpc.ConnectParams{
			// Find a member within a second after it comes back.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: requestTime,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1 << 30)), // enough for a million tickets
		grpc.WithNoProxy(), // HTTPS_PROXY is for the web, not for the members of a cluster
	}
	if o.TLS != nil && o.TLS.ServerName != "" {
		options = append(options, grpc.WithAuthority(o.TLS.ServerName)) // clientv3 would check the endpoint's host
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{endpoint},
		TLS:                  o.TLS,
		DialOptions:          options,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second, // also for data that a lost member does not acknowledge
		MaxUnaryRetries:      1,               // it would repeat requests with a refused token
		Logger:               zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", endpoint, err)
	}
	m.client, m.leases, m.login.auth = client, clientv3.RetryLeaseClient(client), clientv3.RetryAuthClient(client)
	// Without the client's call options, requests do not wait for a connection: errors say why there is none.
	client.KV = clientv3.NewKVFromKVClient(clientv3.RetryKVClient(client), nil)
	client.Lease = clientv3.NewLeaseFromLeaseClient(m.leases, nil, requestTime)
	return m, nil
}

// silence is what is wrong when a connection was given up after [requestTime].
const silence = "the member has not answered in time"

// hints explain errors that do not explain themselves. gRPC passes the causes of failed
// connections on only as text. The first match is used.
var hints = []struct{ scheme, text, hint string }{
	{"", "permission denied", "the user has no right to read and write the namespace"},
	{"", "user name is empty", "etcd demands a username and a password"},
	{"http:", "use of closed network connection", silence},
	{"https", "authentication handshake failed: context deadline exceeded", silence},
	{"https", "certificate required", "the member demands a client certificate (tls cert and key)"},
	{"https", "tls: bad certificate", "the member does not accept our client certificate, or demands one (tls cert and key)"},
	{"https", "tls: unknown certificate authority", "the member does not know the authority of our client certificate"},
	{"https", "x509:", "the member's certificate is not trusted"},
	{"https", "authentication handshake failed", "the member closed the connection; it may speak http, the endpoint says https"},
	{"http:", "error reading server preface", "the member answers something else; it may speak https, the endpoint says http"},
	{"http:", "connection reset by peer", "the member closed the connection; it may speak https, the endpoint says http"},
}

// explain adds the member to its error, preceded by a hint if there is one.
func (m *member) explain(err error) error {
	if err == nil {
		return nil
	}
	for _, h := range hints {
		if strings.HasPrefix(m.endpoint, h.scheme) && strings.Contains(err.Error(), h.text) {
			return fmt.Errorf("member %s: %s: %w", m.endpoint, h.hint, err)
		}
	}
	return fmt.Errorf("member %s: %w", m.endpoint, err)
}
