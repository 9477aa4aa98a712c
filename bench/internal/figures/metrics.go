package figures

// Metric is a kind of figure. Its name ends in its unit.
type Metric string

// Of servers.
const (
	Rate    Metric = "requests_per_second"
	Median  Metric = "wait_median_ms"
	Late    Metric = "wait_p99_ms"
	Failed  Metric = "failed_requests"
	Stalled Metric = "stalled_runs" // in which a client had no answer in half a minute
	Inside  Metric = "inside_at_once"
	Refused Metric = "refusals_per_second"
	Gap     Metric = "idle_gap_us" // from one's end to the next one's begin at the upstream, median
	GapLate Metric = "idle_gap_p99_us"
	Idle    Metric = "idle_percent" // of the time, at the upstream
	Answer  Metric = "answer_ms"    // of one request
	Place   Metric = "waiting_place_bytes"
	Sale    Metric = "sale_seconds"           // from the first browser to the last one's answer
	Missed  Metric = "missed_turns"           // of browsers with the waiting page
	Memory  Metric = "most_memory_mb"         // resident, of a server's process
	Load    Metric = "processor_percent"      // of one core, of a server
	Work    Metric = "request_processor_us"   // of a server, for one request
	Others  Metric = "used_by_others_percent" // of the machine, during the run
)

// Of the library.
const (
	Turn         Metric = "turn_us"
	TurnWork     Metric = "turn_processor_us"
	HandOver     Metric = "hand_over_us"
	HandOverLate Metric = "hand_over_p99_us"
	HandOvers    Metric = "hand_overs"

	Calls            Metric = "turn_system_calls"
	OwnCalls         Metric = "turn_system_calls_without_scheduler"
	Instructions     Metric = "turn_instructions"
	PureInstructions Metric = "turn_instructions_without_collector"
	Allocations      Metric = "allocations" // of a turn, a request or an ID
	Allocated        Metric = "allocated_bytes"
	WaiterHeap       Metric = "waiter_heap_bytes"
	WaiterStack      Metric = "waiter_stack_bytes"
	Connection       Metric = "connection_bytes" // heap and stack of Caddy
)

// Of generators of IDs.
const (
	ID        Metric = "id_ns"
	IDRatio   Metric = "id_ratio"     // to rs/xid
	IDScaling Metric = "id_two_cores" // times what one makes
)
