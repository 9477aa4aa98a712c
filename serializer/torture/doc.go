// Command torture tries to break the lock-file queue, and says whether it did.
//
//	go run ./serializer/torture -handovers 1000000
//
// It starts several processes with many goroutines each. All of them enter the
// same few queues in one directory, again and again. Behind the queue stands
// the oracle: a log in shared memory, in which each entry and each exit takes
// the next free place with one atomic operation. So the log is in the order in
// which things happened, whatever the scheduler does, and a process that is
// killed leaves no hole in it. The harness reads the log and knows exactly
// whether two were inside who should not have been (an overlap), whether a
// later ticket went before an earlier one (an inversion), and whether a call
// never came back (lost). With the fault "pause", it also knows whether somebody
// entered a paused queue (an intrusion). Each process says which of its tickets were
// inside when it came to know of the pause, so this is exact, too. With the fault
// "supersede", it knows whether somebody was refused as superseded without enough
// later arrivals, or entered all the same (wronged).
//
// Meanwhile it throws faults, at random from a printed seed: it kills and stops
// processes, replaces the directory, takes permissions away, fills the disk,
// moves the clocks. See -h for the list.
//
// The exit status is 1 if there was any of these, or if the queue took more than 250 ms
// to go on after its holder was killed, or after a pause.
package main
