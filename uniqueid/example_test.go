package uniqueid_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// One ID in three notations: a line of a log, a row of a database and a trace.
func ExampleUUIDv7_TXID() {
	id, err := uniqueid.ParseUUIDv7("018bcfe5-687b-7048-b456-789abcd54321")
	if err != nil {
		fmt.Println(err)
		return
	}
	txid, _ := id.TXID()
	fmt.Println(txid, txid.Time())
	fmt.Println(id.TraceID())
	// Output:
	// cbpvimguo4hkaps9lf6g 2023-11-14 22:13:20.123 +0000 UTC
	// 018bcfe5687b7048b456789abcd54321
}

func ExampleTraceContext() {
	received, err := uniqueid.ParseTraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	if err != nil {
		fmt.Println(err)
		return
	}
	sent := received.Child()
	fmt.Println(sent.TraceID(), sent.Flags() == uniqueid.TraceSampled, sent.ParentID() != received.ParentID())
	// Output: 4bf92f3577b34da6a3ce929d0e0e4736 true true
}

func ExampleUniqueIDGenerator() {
	node, err := uniqueid.FixedNode(netip.MustParseAddr("192.0.2.10"), 12345)
	if err != nil {
		fmt.Println(err)
		return
	}
	gen, err := uniqueid.NewUniqueIDGenerator(uniqueid.Classic, node)
	if err != nil {
		fmt.Println(err)
		return
	}
	id := gen.New(time.Unix(1_700_000_000, 0))
	fmt.Println(len(id.String()), id.Time(), id.Fields().Addr, id.Fields().PID)
	// Output: 19 2023-11-14 22:13:20 +0000 UTC 192.0.2.10 12345
}

func ExampleCallNumberGenerator() {
	dir, err := os.MkdirTemp("", "runs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	gen := uniqueid.NewCallNumberGenerator(uniqueid.NewFileRunStore(filepath.Join(dir, "runs")))
	defer gen.Close()
	for range 3 {
		number, err := gen.New(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(number, number.Run(), number.Sequence())
	}
	// Output:
	// 00000000 0 0
	// 00bVJxYW 0 1
	// 0000000W 0 2
}
