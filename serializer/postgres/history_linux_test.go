package postgres

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testrelay"
	"github.com/orderly-http/caddy-orderly/serializer"

	"github.com/orderly-http/caddy-orderly/internal/testpostgres"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// replicated is a server with a standby, and the links of processes to it.
type replicated struct {
	t                *testing.T
	ttl              time.Duration
	primary, standby *testpostgres.Server
	links            [][]*testrelay.Relay
}

func (r *replicated) faults() map[string]func() {
	all := func(do func(*testrelay.Relay)) {
		for _, links := range r.links {
			do(links[0])
		}
	}
	return map[string]func(){
		"the server killed": func() {
			r.primary.Kill()
			time.Sleep(time.Second)
			r.primary.Run()
		},
		"the server restarted": func() {
			r.primary.Stop()
			r.primary.Run()
		},
		"the server frozen": func() {
			r.primary.Freeze()
			time.Sleep(r.ttl + time.Second)
			r.primary.Thaw()
		},
		"a process led to an empty schema": func() {
			r.primary.Query("orderly", "CREATE SCHEMA IF NOT EXISTS elsewhere; ALTER ROLE orderly SET search_path = elsewhere")
			r.links[rand.IntN(len(r.links))][0].Cut()
			time.Sleep(2*r.ttl + time.Second)
			r.primary.Query("orderly", "ALTER ROLE orderly RESET search_path")
			r.primary.Query("orderly", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
		},
		"answers to commits lost": func() {
			for range 20 {
				all(func(link *testrelay.Relay) { link.Lose("COMMIT") })
				time.Sleep(100 * time.Millisecond)
			}
		},
		"tables locked": func() { lockTables(r.primary, 3*time.Second) },
		"the clock set": func() { setClock([]string{"1 hour", "0", "-1 hour"}[rand.IntN(3)])(r.primary) },
		"conflicts": func() {
			r.primary.Query("orderly", `CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF random() < 0.3 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF; RETURN NEW; END $$;
				CREATE TRIGGER conflict BEFORE INSERT OR UPDATE ON orderly_tickets FOR EACH ROW EXECUTE FUNCTION conflict()`)
			time.Sleep(2 * time.Second)
			r.primary.Query("orderly", "DROP FUNCTION conflict CASCADE")
		},
		"a standby promoted": func() {
			r.primary.Kill()
			r.standby.Promote()
			all(func(link *testrelay.Relay) { link.Lead(r.standby.Addr) })
			r.primary, r.standby = r.standby, r.standby.Standby(testpostgres.Dir(r.t))
			time.Sleep(r.ttl + time.Second)
		},
	}
}

// One of the three processes comes through a pooler.
func TestHistories(t *testing.T) {
	r := &replicated{t: t, ttl: 5 * time.Second, primary: testpostgres.Start(t)}
	makeSettable(r.primary)
	r.standby = r.primary.Standby(testpostgres.Dir(t))
	var engines []*serializer.Engine
	for i := range 3 {
		link := testrelay.Start(t, r.primary.Addr)
		url := urlOf(link.Addr)
		if i == 2 {
			url = testpostgres.StartPooler(t, link.Addr).URL()
		}
		r.links, engines = append(r.links, []*testrelay.Relay{link}), append(engines, open(t, Options{URL: url, TTL: r.ttl}))
		testlease.EnterSoon(t, engines[i]) // some faults need the tables
	}
	testlease.Histories{TTL: r.ttl, Engines: engines, Links: r.links, Faults: r.faults}.Run(t)
}
