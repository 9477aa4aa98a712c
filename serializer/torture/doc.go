// Command torture tries to break the lock-file queue, and reports whether it did.
//
//	go run ./serializer/torture -for 10m
//
// It starts several processes with many goroutines each, which enter the same few queues
// in one directory again and again. The oracle behind the queues reads a pipe: each entry
// and each exit is one write, which the kernel takes completely or not at all. So the log
// is in the order of events, whatever the scheduler does, and a process that is killed
// leaves no gap. The oracle reports exactly
//
//   - overlaps: two were inside who must not be inside together;
//   - inversions: a later ticket entered before an earlier one;
//   - intrusions: somebody entered a paused queue. Each process reports which of its
//     tickets were inside when it learned of the pause, so this is exact, too;
//   - wronged callers: evicted although nobody asked for that;
//   - lost calls: a call never returned, or waited in vain.
//
// In the meantime, it causes faults at random, from a printed seed. It kills and stops
// processes, replaces the directory, damages files, takes permissions away, fills the
// disk, and steps the clocks. See -h for the list.
//
// It stops at the first finding, and the exit status is then 1. It is also 1 if the queue
// took more than 250 ms to continue after its holder was killed. Once the faults are over,
// every process must be able to enter, and none may be refused.
package main
