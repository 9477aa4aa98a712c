package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/jackc/pgx/v5"

	"github.com/orderly-http/caddy-orderly/internal/testpostgres"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testhandover"
)

// How long nobody is inside while others wait, beside a committed insert of the same server.
func BenchmarkHandOver(b *testing.B) {
	server := testpostgres.Start(b, "fsync=on")
	pooler := testpostgres.StartPooler(b, server.Addr)
	conn, err := pgx.Connect(b.Context(), server.URL())
	testlease.Must(b, err)
	defer conn.Close(context.Background())
	testlease.Must(b, testlease.Second(conn.Exec(b.Context(), "CREATE TABLE bare (text text)")))
	for _, hold := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		testhandover.Run(b, fmt.Sprintf("hold=%s/insert", hold), 1, hold, func(ctx context.Context, _ int) (func(), error) {
			return func() {}, testlease.Second(conn.Exec(ctx, "INSERT INTO bare VALUES ('value')"))
		})
		for _, processes := range []int{1, 2, 8} {
			for name, url := range map[string]string{"direct": server.URL(), "pooled": pooler.URL()} {
				var engines []*testlease.Engine
				for range processes {
					engines = append(engines, ready(b, url))
				}
				testhandover.Run(b, fmt.Sprintf("hold=%s/%s/processes=%d", hold, name, processes), 8, hold, func(ctx context.Context, i int) (func(), error) {
					return testhandover.Enter(ctx, engines[i%processes].Engine, testlease.Arrival(testlease.Queue, 0))
				})
			}
		}
	}
}
