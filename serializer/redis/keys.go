package redis

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// keys are the names of a namespace. The braces put them into one hash slot.
//
//	{<namespace>}:meta      a hash: what the script remembers
//	{<namespace>}:sessions  a sorted set: sessions and their deadlines
//	{<namespace>}:tickets   a hash: by number, the session, the state and a record
//	{<namespace>}:log       a stream: the last changes
//	{<namespace>}:pauses    a hash: by name, the end for people, and by the server's clock
//	{<namespace>}:changes   a channel: new entries of the log
type keys struct {
	namespace, channel string
	all                []string // as the script expects them
}

func keysOf(namespace string) keys {
	k := keys{namespace: namespace, channel: "{" + namespace + "}:changes"}
	for _, name := range []string{"meta", "sessions", "tickets", "log", "pauses"} {
		k.all = append(k.all, "{"+namespace+"}:"+name)
	}
	return k
}

// commandsNeeded are those that the user needs the right for, for ACL SETUSER.
const commandsNeeded = "+@read +@write +@scripting +@pubsub +@connection +info +time"

// rights are all that the user needs.
func (k keys) rights() string {
	pattern := "{" + k.namespace + "}:*"
	return fmt.Sprintf("~%s &%s %s", pattern, pattern, commandsNeeded)
}

// record is what others know of a ticket, as text: the facts that other processes need,
// and those that people want to know.
type record struct {
	Queue  string    `json:"queue"` // URL-escaped
	Owner  string    `json:"owner"`
	Client string    `json:"client,omitempty"`
	Since  time.Time `json:"since"` // of the arrival, by the owner's clock; for people only
	Shared bool      `json:"shared,omitempty"`
	Limit  int       `json:"limit,omitempty"`
}

func recordOf(t *serializer.Ticket) string {
	r := record{Queue: url.PathEscape(t.Queue), Owner: t.Owner.Name, Since: t.Arrived.UTC(), Shared: t.Rule.Shared, Limit: t.Rule.Limit}
	if t.Client.IsValid() {
		r.Client = t.Client.String()
	}
	text, _ := json.Marshal(r) // texts, numbers and a time of this century always marshal
	return string(text)
}

// remoteTicket makes the ticket of another process. One that cannot be read is exclusive.
func remoteTicket(number uint64, text string) *serializer.Ticket {
	var r record
	_ = json.Unmarshal([]byte(text), &r)
	t := &serializer.Ticket{Number: number, Arrived: r.Since, Owner: &serializer.Owner{Name: r.Owner, Alive: true}}
	t.Queue, _ = url.PathUnescape(r.Queue)
	t.Rule = serializer.Rule{Shared: r.Shared, Limit: r.Limit}
	t.Client, _ = netip.ParseAddrPort(r.Client)
	return t
}
