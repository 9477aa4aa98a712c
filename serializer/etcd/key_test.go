package etcd

import "testing"

// What stands in etcd is documented for operators, and shared by processes of different
// versions.
func TestFormats(t *testing.T) {
	const keys = keyspace("orderly/")
	for _, c := range []struct{ what, got, want string }{
		{"a ticket's key", keys.ticket(ticketKey{"a/b", 0x32698d1f3a6a4b07, 65}), "orderly/a%2Fb/32698d1f3a6a4b07-000000000041"},
		{"a pause's key", keys.pause("a/b"), "orderly/!pause/a%2Fb"},
		{"a session's key", keys.session(0x7abc), "orderly/!session/7abc"},
	} {
		if c.got != c.want {
			t.Errorf("%s is %s; expected %s", c.what, c.got, c.want)
		}
	}
}

// Numbers grow with revisions, and within a revision with the place in the batch.
func TestNumbers(t *testing.T) {
	var last uint64
	for _, revision := range []int64{1, 2, 1 << 40} {
		for place := range uint64(maxBatch) {
			number := ticketKey{seq: 7<<batchBits | place}.number(revision)
			if number <= last || revisionOf(number) != revision {
				t.Fatalf("place %d of revision %d has number %d, after %d", place, revision, number, last)
			}
			last = number
		}
	}
}

// A key is read as it was written, and no other key is taken for a ticket.
func FuzzTicketKey(f *testing.F) {
	for _, key := range []string{"", "o/", "o/a/1-1", "o/a%2fb/1-1", "o/!pause/a", "o/!session/1", "o/a/1-1/1", "p/a/1-1", "o/a/-1-1"} {
		f.Add(key, "a/b\xff", int64(5), uint64(6))
	}
	const keys = keyspace("o/")
	f.Fuzz(func(t *testing.T, key, queue string, lease int64, seq uint64) {
		k := ticketKey{queue, 1, seq}
		if got, ok := keys.parseTicket(keys.ticket(k)); !ok || got != k {
			t.Errorf("%+v is read as %+v, %t", k, got, ok)
		}
		if name, ok := keys.paused(keys.pause(queue)); !ok || name != queue {
			t.Errorf("the pause of %q is read as that of %q, %t", queue, name, ok)
		}
		if _, ok := keys.parseTicket(keys.pause(queue)); ok {
			t.Errorf("the pause of %q is read as a ticket", queue)
		}
		if got, ok := keys.parseTicket(key); ok {
			if again, _ := keys.parseTicket(keys.ticket(got)); again != got {
				t.Errorf("%q is read as %+v, and that as %+v", key, got, again)
			}
		}
	})
}

// Bug: endpoints that can never work were refused only when a caller wanted in.
func TestInvalidEndpoints(t *testing.T) {
	for _, endpoint := range []string{"", "10.0.0.1:2379", "http://10.0.0.1", "http://10.0.0.1:99999", "ftp://10.0.0.1:1"} {
		if st, err := Open(Options{Endpoints: []string{"https://[::1]:2379", endpoint}}); err == nil {
			st.Close()
			t.Errorf("%q is accepted", endpoint)
		}
	}
}
