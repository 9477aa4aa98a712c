package lease

import (
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// A record is documented for operators, and shared by processes of different versions.
func TestRecord(t *testing.T) {
	since := time.Date(2026, 11, 20, 8, 15, 30, 123456000, time.UTC)
	for _, c := range []struct {
		rule   serializer.Rule
		client string
		inside bool
		want   string
	}{
		{serializer.Rule{Limit: 1}, "192.168.0.1:36794", false,
			`{"queue":"a%2Fb","owner":"pid 1 on web1","client":"192.168.0.1:36794","since":"2026-11-20T08:15:30.123456Z","limit":1}`},
		{serializer.Rule{Shared: true, Limit: 3}, "", true,
			`{"queue":"a%2Fb","owner":"pid 1 on web1","since":"2026-11-20T08:15:30.123456Z","shared":true,"limit":3,"inside":true}`},
	} {
		ticket := &serializer.Ticket{Queue: "a/b", Arrived: since, Owner: &serializer.Owner{Name: "pid 1 on web1"}}
		ticket.Rule = c.rule
		ticket.Client = c.client
		got := Record(ticket, c.inside)
		if got != c.want {
			t.Errorf("got %s; expected %s", got, c.want)
		}
		read := RemoteTicket("key", 17, got)
		if Record(read, read.Ref == IsInside) != got || read.Number != 17 || read.Key != "key" || !read.Owner.Alive {
			t.Errorf("%s is read as %+v", got, read)
		}
	}
}

// The record of a later version is read, and one that cannot be read is exclusive.
func TestOtherRecords(t *testing.T) {
	later := RemoteTicket("", 1, `{"owner":"pid 1 on web1","colour":{"red":1},"shared":true,"limit":3,"inside":true}`)
	if later.Owner.Name != "pid 1 on web1" || later.Rule != (serializer.Rule{Shared: true, Limit: 3}) || later.Ref != IsInside {
		t.Errorf("the record of a later version is read as %+v", later)
	}
	for _, text := range []string{"", "{", `{"shared":true,"limit":"x"}`} {
		if r := RemoteTicket("", 1, text); r.Owner.Name != "unknown" || r.Rule != (serializer.Rule{}) {
			t.Errorf("%q is read as %+v", text, r)
		}
	}
}
