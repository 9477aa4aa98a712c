package testetcd

import (
	"net"
	"net/url"
	"testing"
	"time"
)

// Bug: a member did not start where a process that another test was starting still had
// the socket by which its address was chosen.
func TestAddressInUseForAMoment(t *testing.T) {
	m := New(t)
	u, err := url.Parse(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { l.Close() })
	m.Start(t)
}
