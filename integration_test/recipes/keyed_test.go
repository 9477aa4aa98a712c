package recipes

import (
	"fmt"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

func TestAtMostTwoForEachAddress(t *testing.T) {
	k := cook(t, "At most two for each address", "queue_length 10", "queue_length 1")
	const prefix = "address_127.0.0.1_"
	var answers []<-chan testcaddy.Answer
	for i := range 3 {
		answers = append(answers, k.get(t, fmt.Sprint(i)))
		k.awaitTickets(t, prefix, i+1)
	}
	inside := []*testcaddy.Visit{k.Next(), k.Next()}
	k.Nobody()
	want(t, k.get(t, "3"), 429, "")
	inside[0].Leave()
	inside[1].Leave()
	k.NextNamed("2").Leave()
	for _, answer := range answers {
		want(t, answer, 200, "served")
	}
}

func TestAtMostFourForEachUpstream(t *testing.T) {
	reports := testcaddy.NewGatedUpstream(t)
	k := cook(t, "At most four for each upstream", "localhost:9001", reports.Addr)
	var answers []<-chan testcaddy.Answer
	for i := range 6 {
		answers = append(answers, k.get(t, fmt.Sprint("reports/", i)))
	}
	var inside []*testcaddy.Visit
	for range 4 {
		inside = append(inside, reports.Next())
	}
	reports.Nobody()
	other := k.get(t, "other") // of the other upstream; waits for nobody
	k.NextNamed("other").Leave()
	want(t, other, 200, "served other")
	for range 2 {
		inside[0].Leave()
		inside = append(inside[1:], reports.Next())
	}
	for _, v := range inside {
		v.Leave()
	}
	for _, answer := range answers {
		want(t, answer, 200, "served")
	}
	reports.WantMost(4)
}

func TestOneCheckoutForEachSession(t *testing.T) {
	k := cook(t, "One checkout for each session")
	buy := func(session, path string) <-chan testcaddy.Answer {
		return testcaddy.Send(t, "POST", k.url+path, "", "Cookie", "session="+session)
	}
	first := buy("a", "checkout")
	inside := k.NextNamed("checkout")
	second := buy("a", "checkout/")
	k.awaitTickets(t, "checkout_a_", 2)
	want(t, buy("a", "checkout"), 409, "")
	other := buy("b", "checkout/pay")
	k.NextNamed("checkout/pay").Leave()
	want(t, other, 200, "served")
	page := k.get(t, "checkout") // is no order
	k.NextNamed("checkout").Leave()
	want(t, page, 200, "served")
	inside.Leave()
	want(t, first, 200, "served")
	k.NextNamed("checkout/").Leave()
	want(t, second, 200, "served")
}

func TestWebhooksInOrder(t *testing.T) {
	k := cook(t, "Webhooks in order")
	var answers []<-chan testcaddy.Answer
	for i := range 5 {
		// Odd ways to write the address lead to the same queue.
		path := []string{"hooks/shop1/event", "hooks//shop1/event", "hooks/./shop1/event", "x/../hooks/shop1/event", "/hooks/shop1/event"}[i]
		answers = append(answers, testcaddy.Send(t, "POST", k.url+path, fmt.Sprint(i)))
		k.awaitTickets(t, "hooks_shop1_", i+1)
	}
	inside := k.NextNamed("hooks/shop1/event")
	other := testcaddy.Send(t, "POST", k.url+"hooks/shop2", "other")
	k.NextNamed("hooks/shop2").Leave()
	want(t, other, 200, "served")
	for i := range 5 {
		if i > 0 {
			inside = k.Next()
		}
		if inside.Body != fmt.Sprint(i) {
			t.Fatalf("event %s was handled; expected %d", inside.Body, i)
		}
		inside.Leave()
		want(t, answers[i], 200, "served")
	}
}
