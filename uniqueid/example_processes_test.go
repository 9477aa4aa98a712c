package uniqueid_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// runProcess makes what each process makes once, when it starts, and then some IDs.
func runProcess(ctx context.Context, runFile string) error {
	// The address and the pid tell processes apart. Where they cannot, random bits do.
	node, reason := uniqueid.AutoNode(uniqueid.ThisMachine(ctx))
	if reason != "" {
		log.Print("unique IDs have a random node: ", reason)
	}
	requests, err := uniqueid.NewUniqueIDGenerator(uniqueid.Classic, node)
	if err != nil {
		return err
	}
	// Each process takes runs of 16,384 call numbers from the file that all share.
	runs, err := uniqueid.NewFileRunStore(runFile)
	if err != nil {
		return err
	}
	orders, err := uniqueid.NewCallNumberGenerator(runs)
	if err != nil {
		return err
	}
	defer orders.Close()
	for range 2 {
		number, err := orders.New(ctx)
		if err != nil {
			return err
		}
		fmt.Println(number, number.Run(), number.Sequence(), len(requests.New(time.Now()).String()))
	}
	return nil
}

// IDs that never collide, from several processes of a machine. TXIDs and UUIDs need none of
// this: their random bits differ.
func Example_processes() {
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 2 { // one after the other, here in the same process
		if err := runProcess(ctx, filepath.Join(dir, "runs")); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 00000000 0 0 19
	// 00bVJxYW 0 1 19
	// 009NKUO8 1 0 19
	// 00kseRwe 1 1 19
}
