package uniqueid

import (
	"net/netip"
	"os"
	"testing"
)

func failed[T any](_ T, err error) error { return err }

// Bug: what was missing was noticed by the first ID, some of it by a panic that nobody can recover from, or
// never.
func TestConstructorsCheckTheirArguments(t *testing.T) {
	t.Chdir(t.TempDir())
	unmade, err := NewCallNumberGenerator(new(FileRunStore))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{failed(NewCallNumberGenerator(nil)), "making a call_number generator: the store is missing: pass a RunStore, such as a FileRunStore"},
		{failed(unmade.New(t.Context())), "making a call number: taking the next run: the store of runs has no path: make it with NewFileRunStore"},
		{failed(NewFileRunStore("")), `making a store of runs: "" is not the path of a file`},
		{failed(NewFileRunStore(".")), `making a store of runs: "." is not the path of a file`},
		{failed(NewFileRunStore("new/")), `making a store of runs: "new/" is not the path of a file`},
		{failed(NewUniqueIDGenerator(Classic, Node{})), "making a unique_id generator: the node is missing: make one with AutoNode, FixedNode or RandomNode"},
		{failed(NewUniqueIDGenerator(3, Node{})), "making a unique_id generator: unknown layout 3"},
		{failed(NewShardedIDGenerator(0)), "making a sharded_id generator: number of shards is 0: want 1 to 1000000"},
		{failed(NewShardedIDGenerator(MaxShards + 1)), "making a sharded_id generator: number of shards is 1000001: want 1 to 1000000"},
		{failed(ParseShardedIDOf("39f3c4aa5c7f2c2d33", 0)), "number of shards is 0: want 1 to 1000000"},
		{failed(FixedNode(netip.Addr{}, 1)), `making a node: "invalid IP" is not an IPv4 address`},
		{failed(FixedNode(netip.MustParseAddr("2001:db8::1"), 1)), `making a node: "2001:db8::1" is not an IPv4 address`},
		{failed(ParseLayout("Modern")), `unknown layout "Modern": want classic, threaded or modern`},
	} {
		if tt.err == nil || tt.err.Error() != tt.want {
			t.Errorf("error is %v\n     not %s", tt.err, tt.want)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("bad paths left %v, %v", left, err)
	}
	// Options that are nil leave the defaults.
	options := []Option{nil, WithClock(nil), WithRandom(nil)}
	NewTXIDGenerator(options...).NewUUIDv7()
	Must(NewShardedIDGenerator(1, options...)).New()
	defer func() {
		if err, ok := recover().(*ParseError); !ok {
			t.Errorf("Must with an error panics with %v", err)
		}
	}()
	Must(ParseTXID("x"))
}
