package redis

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// requestTime is the longest time that a server may take to answer.
const requestTime = 2 * time.Second

// servers are a master and its replicas.
type servers struct {
	clients []*redis.Client
	user    string
	keys    keys
	current atomic.Int64  // index of the one that is used
	timeout time.Duration // of requests; leases outlast one that fails, and the choice of another server
}

// answerTime is how long a server may take to answer, with a time to live of leases.
func answerTime(ttl time.Duration) time.Duration { return min(ttl/4, requestTime) }

func newServers(o Options) *servers {
	s := &servers{user: o.Username, keys: keysOf(o.Namespace, o.Database), timeout: answerTime(o.TTL)}
	for _, address := range o.Addresses {
		s.clients = append(s.clients, redis.NewClient(&redis.Options{
			Addr: address, Username: o.Username, Password: o.Password, DB: o.Database, TLSConfig: o.TLS,
			DialTimeout: s.timeout, ReadTimeout: s.timeout, WriteTimeout: s.timeout, ContextTimeoutEnabled: true,
			MaxRetries: -1, DialerRetries: 1, // the store knows what it may repeat
			PoolSize: 8, ConnMaxIdleTime: 10 * time.Second, // unused connections need not wait to be cut
			Protocol: 2, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}))
	}
	return s
}

func (s *servers) close() {
	for _, c := range s.clients {
		_ = c.Close()
	}
}

func (s *servers) client() *redis.Client { return s.clients[s.current.Load()] }

// subscribe gets what processes publish, from the current server.
func (s *servers) subscribe(ctx context.Context) (*redis.PubSub, error) {
	p := s.client().Subscribe(ctx, s.keys.channel)
	if _, err := p.ReceiveTimeout(ctx, s.timeout); err != nil {
		_ = p.Close()
		return nil, s.explain(err)
	}
	return p, nil
}

//go:embed script.lua
var source string

var script = redis.NewScript(source)

// run has a server carry out the script.
func (s *servers) run(ctx context.Context, server *redis.Client, args ...any) ([]string, error) {
	answer, err := script.Run(ctx, server, s.keys.all, args...).StringSlice()
	if err != nil {
		return nil, s.explain(err)
	}
	return answer, nil
}

// ErrUnsuitable is why a server can keep no queues as it is configured.
var ErrUnsuitable = errors.New("this server cannot keep queues")

// choose looks for the master among the servers, which it asks all at once. If several take
// themselves for it, none may be used: one of them was cut off from the others, and may have
// old tickets. So each is waited for as long as it may take to answer. An unsuitable one is an
// error at once.
func (s *servers) choose(ctx context.Context) error {
	infos, errs, unfit := make([]string, len(s.clients)), make([]error, len(s.clients)), make([]error, len(s.clients))
	answers, silent := make(chan int, len(s.clients)), make(map[int]bool)
	ask := func(i int) {
		infos[i], errs[i] = s.clients[i].Info(ctx).Result()
		if errs[i] == nil && !isReplica(infos[i]) {
			_, noRight := s.run(ctx, s.clients[i], "try", "", 0, "", "", "", 0, s.keys.channel)
			unfit[i] = cmp.Or(suitable(infos[i]), noRight)
		}
		answers <- i
	}
	for i := range s.clients {
		silent[i] = true
		go ask(i)
	}
	master, blamed, trouble := -1, 0, errors.New("no server that answers is a master")
	for len(silent) > 0 {
		i := <-answers
		delete(silent, i)
		address := s.clients[i].Options().Addr
		switch {
		case errs[i] != nil && i < blamed: // the log has the same each time, whichever answers first
		case errs[i] != nil:
			blamed, trouble = i, fmt.Errorf("%s: %w", address, s.explain(errs[i]))
		case isReplica(infos[i]):
			time.AfterFunc(lease.RetryPause, func() { ask(i) }) // it may take over before the silent ones answer
		case unfit[i] != nil:
			return fmt.Errorf("%s: %w", address, unfit[i])
		case master < 0:
			master = i
		case infoValue(infos[i], "run_id") != infoValue(infos[master], "run_id"): // otherwise, it has two names
			return fmt.Errorf("%s and %s are both masters; wait until one follows the other", s.clients[master].Options().Addr, address)
		}
	}
	if master < 0 {
		return trouble
	}
	s.current.Store(int64(master))
	return nil
}

func isReplica(info string) bool { return infoValue(info, "role") == "slave" }

// suitable returns why a server must not be used.
func suitable(info string) error {
	policy := infoValue(info, "maxmemory_policy")
	switch mode := cmp.Or(infoValue(info, "redis_mode"), infoValue(info, "server_mode")); { // Valkey has the second
	case mode == "cluster" || mode == "sentinel":
		return fmt.Errorf("%w: its mode is %s; expected a single server, or a master with replicas, such as those that a Sentinel watches", ErrUnsuitable, mode)
	case infoValue(info, "maxmemory") != "0" && strings.HasPrefix(policy, "allkeys-"):
		// Other policies drop keys that expire, and no key here does.
		return fmt.Errorf("%w: with maxmemory-policy %s, it drops keys, and with them tickets; set noeviction, or one of volatile-*", ErrUnsuitable, policy)
	}
	return nil
}

// infoValue returns a field of what INFO says.
func infoValue(info, name string) string {
	_, rest, _ := strings.Cut("\n"+info, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// explain says what to do about an error, where Redis does not say that itself.
func (s *servers) explain(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "NOPERM") || strings.Contains(text, "ACL failure") || strings.Contains(text, "user executing the script"):
		return fmt.Errorf("%w: the user %q lacks a right; expected at least %s: %w", ErrUnsuitable, s.user, s.keys.rights(), err)
	case strings.Contains(text, "SELECT is not allowed") || strings.Contains(text, "unknown command 'select'") || strings.Contains(text, "DB index is out of range"):
		return fmt.Errorf("%w: it has no such database, as one of a cluster and a Sentinel have none: %w", ErrUnsuitable, err)
	case timedOut(err):
		return fmt.Errorf("no answer within %s; see to the server and the way to it (one without TLS gives none to a client with TLS): %w", s.timeout.Round(time.Millisecond), err)
	}
	return err
}

// transient reports whether a request may succeed when it is repeated, perhaps at another
// server.
func transient(err error) bool {
	if _, refused := errors.AsType[redis.Error](err); refused {
		code, _, _ := strings.Cut(err.Error(), " ")
		return slices.Contains([]string{"READONLY", "LOADING", "MASTERDOWN", "BUSY"}, code)
	}
	return !errors.Is(err, ErrUnsuitable) && !errors.Is(err, serializer.ErrLost)
}

// timedOut reports whether something took too long: dialing, reading, writing, or a context.
func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}
