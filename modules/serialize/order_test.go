package serialize_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// newSites are processes that share a queue: two where the engine can do that.
func newSites(t *testing.T, engine, options string) []*site {
	t.Helper()
	options += "\nengine " + engine
	first := newSite(t, options)
	if engine == "memory" {
		return []*site{first}
	}
	return []*site{first, joinSite(t, first.Place, first.dir, options)}
}

// arrive sends requests, named by their number, to the processes in turn, each
// after the one before it has its ticket.
func arrive(t *testing.T, sites []*site, methods ...string) (answers []<-chan testcaddy.Answer) {
	t.Helper()
	for i, method := range methods {
		answers = append(answers, sites[i%len(sites)].send(t, method, fmt.Sprint(i)))
		sites[0].awaitTickets(t, i+1)
	}
	return answers
}

// together waits for so many requests to enter side by side, and for nobody
// else to do so.
func (s *site) together(t *testing.T, names ...string) (visitors []*testcaddy.Visitor) {
	t.Helper()
	var got []string
	for range names {
		v := s.Next()
		visitors, got = append(visitors, v), append(got, v.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, names) {
		t.Fatalf("%v entered; expected %v", got, names)
	}
	s.Nobody()
	return visitors
}

func leaveAll(visitors []*testcaddy.Visitor) {
	for _, v := range visitors {
		v.Leave()
	}
}

// Exactly so many are inside as the configuration says, and the others follow
// one by one in the order they came, whichever process they came to.
func TestConcurrency(t *testing.T) {
	for _, engine := range []string{"file", "memory"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			sites := newSites(t, engine, "concurrency 3")
			s := sites[0]
			answers := arrive(t, sites, slices.Repeat([]string{"GET"}, 8)...)
			inside := s.together(t, "0", "1", "2")
			for next := 3; next < 8; next++ {
				inside[0].Leave()
				inside = append(inside[1:], s.NextNamed(fmt.Sprint(next)))
			}
			leaveAll(inside)
			for _, a := range answers {
				if got := testcaddy.Await(t, a); got.StatusCode != 200 {
					t.Errorf("a request got %d", got.StatusCode)
				}
			}
			if s.Most() != 3 {
				t.Errorf("%d were inside at once; expected 3", s.Most())
			}
		})
	}
}

// Readers are inside side by side and writers alone; a reader that came after a
// writer waits for it, so the writer's turn comes.
func TestReadersAndWriters(t *testing.T) {
	for _, engine := range []string{"file", "memory"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			sites := newSites(t, engine, "shared_methods GET HEAD")
			s := sites[0]
			answers := arrive(t, sites, "GET", "GET", "POST", "GET", "GET", "PUT", "POST", "GET")
			readers := s.together(t, "0", "1")
			readers[0].Leave()
			s.Nobody()
			readers[1].Leave()
			leaveAll(s.together(t, "2"))
			leaveAll(s.together(t, "3", "4"))
			leaveAll(s.together(t, "5"))
			leaveAll(s.together(t, "6"))
			leaveAll(s.together(t, "7"))
			for _, a := range answers {
				testcaddy.Await(t, a)
			}
		})
	}
}

// With both, concurrency bounds the readers.
func TestReadersUpToConcurrency(t *testing.T) {
	for _, engine := range []string{"file", "memory"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			sites := newSites(t, engine, "shared_methods GET\nconcurrency 2")
			s := sites[0]
			answers := arrive(t, sites, "GET", "GET", "GET", "POST", "GET")
			readers := s.together(t, "0", "1")
			readers[0].Leave()
			s.NextNamed("2").Leave()
			s.Nobody()
			readers[1].Leave()
			leaveAll(s.together(t, "3"))
			leaveAll(s.together(t, "4"))
			for _, a := range answers {
				testcaddy.Await(t, a)
			}
		})
	}
}
