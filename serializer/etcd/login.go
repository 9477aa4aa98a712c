package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// login has the token that a member of etcd accepts from this process. Simple tokens
// expire when they are not used, signed ones always expire, and a restarted member knows
// none.
type login struct {
	auth               pb.AuthClient
	username, password string                 // empty: no login
	token              atomic.Pointer[string] // nil before the first login; empty if authentication is off

	mu      sync.Mutex // held while logging in
	refusal error      // of the last login
	refused time.Time
}

// authorized makes a request with the current token. If etcd refuses the token, it logs in
// and makes the request again.
func authorized[T any](ctx context.Context, m *member, request func(context.Context, *member) (T, error)) (value T, err error) {
	ctx = clientv3.WithRequireLeader(ctx) // a member without one would answer, and learn of nothing new
	l := m.login
	for tries := 0; ; tries++ {
		token := l.token.Load()
		if l.username == "" || token != nil {
			value, err = request(ctx, m)
			err = rpctypes.Error(err)
			// Without a token, etcd takes the name in our certificate as the user.
			refused := unauthenticated(err) || errors.Is(err, rpctypes.ErrPermissionDenied) && token != nil && *token == ""
			if l.username == "" || !refused || tries > 0 {
				return value, err
			}
		}
		if err = l.renew(ctx, token); err != nil {
			return value, err
		}
	}
}

// unauthenticated reports whether etcd requires a token, or a different one.
func unauthenticated(err error) bool {
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}

// refusedLoginPause is how long all callers get the refusal of a login, and etcd is not
// asked. Each login costs etcd a tenth of a second of CPU time.
const refusedLoginPause = 1500 * time.Millisecond

// renew replaces a refused token, unless another goroutine has just done so.
func (l *login) renew(ctx context.Context, refused *string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.token.Load() != refused:
		return nil
	case l.refusal != nil && time.Since(l.refused) < refusedLoginPause:
		return l.refusal
	}
	answer, err := l.auth.Authenticate(ctx, &pb.AuthenticateRequest{Name: l.username, Password: l.password})
	if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrAuthNotEnabled) {
		err = nil // it has been switched off
	}
	l.refusal = nil
	if err != nil {
		err = fmt.Errorf("logging in as %q: %w", l.username, err)
		if errors.Is(err, rpctypes.ErrAuthFailed) {
			l.refusal, l.refused = err, time.Now()
		}
		return err
	}
	l.token.Store(new(answer.GetToken()))
	return nil
}

// GetRequestMetadata implements [credentials.PerRPCCredentials]. etcd would refuse a login
// with a token that has expired.
func (l *login) GetRequestMetadata(_ context.Context, service ...string) (map[string]string, error) {
	token := l.token.Load()
	if token == nil || *token == "" || strings.HasSuffix(service[0], ".Auth") {
		return nil, nil
	}
	return map[string]string{rpctypes.TokenFieldNameGRPC: *token}, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials].
func (*login) RequireTransportSecurity() bool { return false }
