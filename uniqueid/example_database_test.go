package uniqueid_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// A TXID in a column of text sorts by time only with the collation C.
const createOrders = `CREATE TABLE orders (
	id     uuid PRIMARY KEY,
	caused text COLLATE "C" -- the txid of the request, NULL if there was none
)`

// printSince prints the orders since a time, in the order in which they were placed.
func printSince(ctx context.Context, db *sql.DB, begin time.Time) error {
	first := uniqueid.MakeTXID(begin, 0).UUIDv7(0)
	rows, err := db.QueryContext(ctx, "SELECT id, caused FROM orders WHERE id >= $1 ORDER BY id", first)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id uniqueid.UUIDv7
		var caused sql.Null[uniqueid.TXID]
		if err := rows.Scan(&id, &caused); err != nil {
			return err
		}
		fmt.Println(id.Time().After(begin), caused.Valid, caused.V)
	}
	return rows.Err()
}

// IDs in a database: a UUIDv7 as the key, by which rows sort by time, and a TXID.
func Example_database() {
	ctx := context.Background()
	db, err := sql.Open("memory", "") // a real one: sql.Open("pgx", "postgres:///shop")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, createOrders); err != nil {
		log.Fatal(err)
	}
	requests := []sql.Null[uniqueid.TXID]{{}, {V: uniqueid.Must(uniqueid.ParseTXID("cbpvimguo4hkaps9lf6g")), Valid: true}}
	for _, request := range requests {
		const insert = "INSERT INTO orders (id, caused) VALUES ($1, $2)"
		if _, err := db.ExecContext(ctx, insert, uniqueid.NewUUIDv7(), request); err != nil {
			log.Fatal(err)
		}
	}
	if err := printSince(ctx, db, time.Now().Add(-time.Hour)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true false 00000000000000000000
	// true true cbpvimguo4hkaps9lf6g
}
