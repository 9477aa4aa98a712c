package testprocess

import "testing"

// Two processes that begin at the same port get different ones. Bug: those of processes with some
// distances between their numbers overlapped.
func TestProcessesShareNoPorts(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	processes := [2]portRanges{}
	for range 2*rangeSize + 1 {
		for i := range processes {
			addr := processes[i].next()
			if addr == "" || seen[addr] {
				t.Fatalf("process %d gets %q; it had to be a new one", i, addr)
			}
			seen[addr] = true
		}
	}
	for i := range processes {
		for _, l := range processes[i].locked {
			_ = l.Close()
		}
	}
}
