package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// member is one server of the cluster and the connection to it.
//
// etcd's client library is not used. It hides which member answers, and keeps the streams
// of watches on the token with which they were opened. It lets the endpoint's host
// override the server name, and does not report why connections fail.
type member struct {
	endpoint string
	host     string // and port
	conn     *grpc.ClientConn
	kv       pb.KVClient
	leases   pb.LeaseClient
	watcher  pb.WatchClient
	auth     pb.AuthClient

	tls                *tls.Config // nil for http
	username, password string
	loggingIn, opening chan struct{} // each held by the goroutine that logs in, or opens a feed

	// Guarded by loggingIn.

	refusal    error // of the last login; nil if that was accepted
	loginPause time.Duration
	loginAfter time.Time

	mu    sync.Mutex
	token string         // of etcd's authentication; empty if that is off
	asked bool           // whether etcd was asked for a token
	feed  *feed          // for new watches; nil if there is none
	feeds map[*feed]bool // all open feeds
}

func newMember(endpoint string, config *tls.Config, username, password string) (*member, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("reading endpoint: %w", err)
	}
	transport := insecure.NewCredentials()
	switch {
	case u.Scheme != "https":
		config = nil
	case config == nil:
		config = new(tls.Config)
	}
	if config != nil {
		transport = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient("passthrough:///"+u.Host,
		grpc.WithTransportCredentials(transport),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time:    10 * time.Second,
			Timeout: 3 * time.Second, // also for data that a lost member does not acknowledge
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			// Find a member within a second after it comes back.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(), // HTTPS_PROXY is for the web, not for the members of a cluster
	)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", endpoint, err)
	}
	return &member{
		endpoint:  endpoint,
		host:      u.Host,
		conn:      conn,
		kv:        pb.NewKVClient(conn),
		leases:    pb.NewLeaseClient(conn),
		watcher:   pb.NewWatchClient(conn),
		auth:      pb.NewAuthClient(conn),
		tls:       config,
		username:  username,
		password:  password,
		feeds:     make(map[*feed]bool),
		loggingIn: make(chan struct{}, 1),
		opening:   make(chan struct{}, 1),
	}, nil
}

// maxAnswer is the size of the longest answer in bytes, enough for a queue of a million
// tickets.
const maxAnswer = 1 << 30

func (m *member) close() {
	m.dropFeeds(errClosed)
	_ = m.conn.Close() // the error only says that it is closed
}

var errClosed = errors.New("the engine is closed")

func (m *member) secure() bool { return m.tls != nil }

// listen connects, sends nothing, and returns why the member rejects the connection.
func (m *member) listen() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	config := m.tls.Clone()
	config.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", m.host)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// commit carries out a transaction.
func (m *member) commit(ctx context.Context, txn *pb.TxnRequest) (*pb.TxnResponse, error) {
	return authorized(ctx, m, func(ctx context.Context) (*pb.TxnResponse, error) { return m.kv.Txn(ctx, txn) })
}

// leaseAnswer is etcd's answer about a lease that it has granted or renewed.
type leaseAnswer struct {
	ttl    int64 // seconds
	header *pb.ResponseHeader
}

// grant makes a lease with a given ID. So an earlier request whose answer was lost is
// noticed.
func (m *member) grant(ctx context.Context, id, seconds int64) (leaseAnswer, error) {
	answer, err := authorized(ctx, m, func(ctx context.Context) (*pb.LeaseGrantResponse, error) {
		return m.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: seconds})
	})
	return leaseAnswer{answer.GetTTL(), answer.GetHeader()}, err
}

// keepAlive renews a lease, once.
func (m *member) keepAlive(ctx context.Context, id int64) (leaseAnswer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of the stream
	answer, err := authorized(ctx, m, func(ctx context.Context) (*pb.LeaseKeepAliveResponse, error) {
		stream, err := m.leases.LeaseKeepAlive(ctx)
		if err != nil {
			return nil, err
		}
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil && stream.Context().Err() != nil {
			return nil, err
		} // else the answer says what is wrong
		return stream.Recv()
	})
	if err == nil && answer.TTL <= 0 {
		err = rpctypes.ErrLeaseNotFound
	}
	return leaseAnswer{answer.GetTTL(), answer.GetHeader()}, err
}

func (m *member) revoke(ctx context.Context, id int64) error {
	_, err := authorized(ctx, m, func(ctx context.Context) (*pb.LeaseRevokeResponse, error) {
		return m.leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
	})
	return err
}

// authorized makes a call with the current token. If etcd refuses the token, it logs in
// and calls again. Simple tokens expire when they are not used, signed ones always
// expire, and a restarted member knows none.
func authorized[T any](ctx context.Context, m *member, call func(context.Context) (T, error)) (value T, err error) {
	token, asked := m.currentToken()
	if m.username != "" && !asked {
		if token, err = m.login(ctx, token); err != nil {
			return value, err
		}
	}
	value, err = call(withToken(ctx, token))
	if err = rpctypes.Error(err); err == nil || m.username == "" || !refusesToken(err, token) {
		return value, err
	}
	if token, err = m.login(ctx, token); err != nil {
		return value, err
	}
	value, err = call(withToken(ctx, token))
	return value, rpctypes.Error(err)
}

// refusesToken reports whether another token may help. Without a token, etcd takes the
// name in our certificate as the user.
func refusesToken(err error, token string) bool {
	return unauthenticated(err) || token == "" && errors.Is(err, rpctypes.ErrPermissionDenied)
}

// unauthenticated reports whether etcd requires a token, or a different one.
func unauthenticated(err error) bool {
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}

// currentToken returns the token, and whether etcd was ever asked for one.
func (m *member) currentToken() (token string, asked bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.token, m.asked
}

// Pauses between logins that etcd refuses.
const (
	minLoginPause = 100 * time.Millisecond
	maxLoginPause = 2 * time.Second
)

// login replaces a refused token, unless another goroutine has just done so. Each login
// costs etcd a tenth of a second of CPU time. So for a while after a refusal, all callers
// get that refusal, and etcd is not asked.
func (m *member) login(ctx context.Context, refused string) (string, error) {
	select {
	case m.loggingIn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-m.loggingIn }()
	if token, _ := m.currentToken(); token != refused {
		return token, nil
	}
	if m.refusal != nil && time.Now().Before(m.loginAfter) {
		return "", m.refusal
	}
	answer, err := m.auth.Authenticate(ctx, &pb.AuthenticateRequest{Name: m.username, Password: m.password})
	if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrAuthNotEnabled) {
		err = nil // it has been switched off
	}
	if err != nil {
		err = fmt.Errorf("logging in as %q: %w", m.username, err)
	}
	m.noteLoginLocked(err)
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.token, m.asked = answer.GetToken(), true
	return m.token, nil
}

// noteLoginLocked notes how long to wait before the next login.
func (m *member) noteLoginLocked(err error) {
	if !errors.Is(err, rpctypes.ErrAuthFailed) {
		m.refusal, m.loginPause = nil, 0
		return
	}
	m.loginPause = min(max(2*m.loginPause, minLoginPause), maxLoginPause)
	m.refusal, m.loginAfter = err, time.Now().Add(m.loginPause)
}

// withToken adds the metadata that etcd reads. It makes a member without a leader, which
// learns of nothing new, return an error.
func withToken(ctx context.Context, token string) context.Context {
	pairs := []string{rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader}
	if token != "" {
		pairs = append(pairs, rpctypes.TokenFieldNameGRPC, token)
	}
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(pairs...))
}
