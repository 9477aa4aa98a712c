// Command torture tries to break the lock-file queue, and reports whether it did.
//
//	go run ./serializer/torture -handovers 1000000
//
// It starts several processes with many goroutines each, which enter the same few queues
// in one directory again and again. The oracle behind the queues is a log in shared
// memory: each entry and each exit takes the next free slot with one atomic operation. So
// the log is in the order of events, whatever the scheduler does, and a process that is
// killed leaves no gap. The harness reads the log, and reports exactly
//
//   - overlaps: two were inside who must not be inside together;
//   - inversions: a later ticket entered before an earlier one;
//   - lost calls: a call never returned;
//   - intrusions (fault "pause"): somebody entered a paused queue. Each process reports
//     which of its tickets were inside when it learned of the pause, so this is exact, too;
//   - wronged callers (fault "supersede"): a caller was superseded without enough later
//     arrivals, or entered although it was superseded.
//
// In the meantime, it causes faults at random, from a printed seed. It kills and stops
// processes, replaces the directory, takes permissions away, fills the disk, and steps
// the clocks. See -h for the list.
//
// The exit status is 1 if it reports any of these. It is also 1 if the queue took more
// than 250 ms to continue after its holder was killed, or after a pause.
package main
