package uniqueid_test

import (
	"encoding/json"
	"fmt"

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

// In JSON, an ID is its text. Here, one that is missing stays out.
func Example_json() {
	type event struct {
		ID    uniqueid.TXID    `json:"id"`
		Trace uniqueid.TraceID `json:"trace,omitzero"`
	}
	var read event
	if err := json.Unmarshal([]byte(`{"id": "cbpvimguo4hkaps9lf6g"}`), &read); err != nil {
		fmt.Println(err)
		return
	}
	text, err := json.Marshal(read)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(read.ID.Time(), read.Trace.IsZero(), string(text))
	// Output: 2023-11-14 22:13:20.123 +0000 UTC true {"id":"cbpvimguo4hkaps9lf6g"}
}
