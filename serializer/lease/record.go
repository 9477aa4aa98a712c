package lease

import (
	"encoding/json"
	"net/url"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// record is what other processes know of a ticket, as text: the facts that other processes need,
// and those that people want to know.
type record struct {
	Queue  string    `json:"queue,omitempty"` // URL-escaped
	Owner  string    `json:"owner"`
	Client string    `json:"client,omitempty"`
	Since  time.Time `json:"since"` // of the arrival, by the owner's clock; for people only
	Shared bool      `json:"shared,omitempty"`
	Limit  int       `json:"limit,omitempty"`
	Inside bool      `json:"inside,omitempty"` // said while the queue is paused, or when an eviction was obeyed
	Asked  bool      `json:"evict,omitempty"`  // somebody asks the owner for that
}

// Record is a text for other processes about a ticket. The state is made of [IsInside] and [IsAsked].
func Record(t *serializer.Ticket, state uint64) string {
	r := record{
		Queue: url.PathEscape(t.Queue), Owner: t.Owner.Name, Client: t.Client, Since: t.Arrived.UTC(),
		Shared: t.Rule.Shared, Limit: t.Rule.Limit, Inside: state&IsInside != 0, Asked: state&IsAsked != 0,
	}
	text, _ := json.Marshal(r) // texts, numbers and a time of this century always marshal
	return string(text)
}

// RemoteTicket makes the ticket of another process from its [Record]. One that cannot be read
// counts as exclusive: under that rule, nobody enters too early.
func RemoteTicket(key string, number uint64, text string) *serializer.Ticket {
	var r record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		r = record{Owner: "unknown"}
	}
	t := &serializer.Ticket{Key: key, Number: number, Client: r.Client, Arrived: r.Since, Owner: &serializer.Owner{Name: r.Owner, Alive: true}}
	t.Queue, _ = url.PathUnescape(r.Queue)
	t.Rule = serializer.Rule{Shared: r.Shared, Limit: r.Limit}
	if r.Inside {
		t.Ref |= IsInside
	}
	if r.Asked {
		t.Ref |= IsAsked
	}
	return t
}
