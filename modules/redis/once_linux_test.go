package redis

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"
	goredis "github.com/redis/go-redis/v9"

	"github.com/orderly-http/caddy-orderly/internal/testonce"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
)

// The test binary becomes Caddy in an init, so the storage is registered before.
var _ = func() bool { caddy.RegisterModule(storage{}); return true }()

// storage stands in for a module that keeps Caddy's storage on Redis. It has what once uses.
type storage struct {
	certmagic.Storage `json:"-"`
	Address           string `json:"address"`
	client            *goredis.Client
}

func (storage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.stand_in", New: func() caddy.Module { return new(storage) }}
}

func (s *storage) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	s.Address = d.RemainingArgs()[0]
	return nil
}

func (s *storage) Provision(caddy.Context) error {
	s.Storage = &certmagic.FileStorage{Path: caddy.AppDataDir()} // of certificates
	s.client = goredis.NewClient(&goredis.Options{Addr: s.Address, MaxRetries: -1})
	return nil
}

func (s *storage) Cleanup() error { return s.client.Close() }

func (s *storage) CertMagicStorage() (certmagic.Storage, error) { return s, nil }

func (s *storage) Load(ctx context.Context, key string) ([]byte, error) {
	value, err := s.client.Get(ctx, key).Bytes()
	if errors.Is(err, goredis.Nil) {
		return nil, fs.ErrNotExist
	}
	return value, err
}

func (s *storage) Store(ctx context.Context, key string, value []byte) error {
	return s.client.Set(ctx, key, value, 0).Err()
}

func (s *storage) Delete(ctx context.Context, key string) error { return s.client.Del(ctx, key).Err() }

// With records and queues on Redis, no key acts twice, as long as no process is stopped for longer
// than its lease.
func TestOnce(t *testing.T) {
	t.Parallel()
	redis := testprocess.FreeAddr(t)
	startServer(t, redis)
	client := goredis.NewClient(&goredis.Options{Addr: redis})
	defer client.Close()
	testonce.Cluster{
		Options: "storage stand_in " + redis,
		Data:    t.TempDir(),
		Line:    "once {\nscope none\ntimeout 5s\nmax_response 15000\nengine redis {\naddress " + redis + "\nttl 3s\n}\n}",
		Break:   func(length time.Duration) { client.Do(t.Context(), "CLIENT", "PAUSE", length.Milliseconds()+1, "ALL") },
	}.Test(t)
}
