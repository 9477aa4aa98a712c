package postgres_test

import (
	"context"
	"fmt"
	"log"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/postgres"
)

// One machine at a time makes reports. The work stops if the lease is lost.
func Example() {
	store, err := postgres.Open(postgres.Options{URL: "postgres://orderly:secret@10.0.0.1/shop"})
	if err != nil {
		log.Fatal(err)
	}
	engine := serializer.New(store, serializer.Options{})
	defer engine.Close()
	err = engine.Do(context.Background(), serializer.Arrival{Queue: "reports"}, func(ctx context.Context) error {
		for page := 1; page <= 100 && ctx.Err() == nil; page++ {
			fmt.Println("page", page)
		}
		return context.Cause(ctx)
	})
	if err != nil {
		log.Print(err)
	}
}
