package uniqueids

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// Layout, node and shards show in the IDs, of which a request has one of each kind.
func TestLayoutsNodesAndShards(t *testing.T) {
	for _, test := range []struct{ config, id, reading string }{
		{`{"layout": "classic", "node": "192.0.2.7"}`, "{unique_id}", `classic map\[address:192\.0\.2\.7 `},
		{`{"layout": "threaded", "node": "192.0.2.7"}`, "{unique_id}", `threaded map\[address:192\.0\.2\.7 `},
		{`{"layout": "modern"}`, "{unique_id}", `modern map\[.* root:`},
		{`{"node": "random"}`, "{unique_id}", `classic map\[`},
		{`{"shards": 12}`, "{http.request.sharded_id}", ` map\[.* shard:`},
	} {
		u := loaded(t, "unique_ids", test.config)
		first, second, _ := strings.Cut(request{}.through(t, test.id+" "+test.id, u), " ")
		if again := (request{}).through(t, test.id, u); first != second || again == first {
			t.Errorf("%s: IDs %s and %s in one request, and %s in the next", test.config, first, second, again)
		}
		readings, err := uniqueid.Decode(first)
		if err != nil || !regexp.MustCompile("^"+test.reading).MatchString(fmt.Sprint(readings[0].Layout, " ", readings[0].Fields)) {
			t.Errorf("%s: %s reads as %+v, %v; expected %s", test.config, first, readings, err, test.reading)
		}
		if _, err := uniqueid.ParseShardedIDOf(first, 12); strings.Contains(test.config, "shards") && err != nil {
			t.Error(err)
		}
	}
}

// A request that uses no ID makes none: unique_ids count, and none is missing in between. A
// reload goes on counting. With a new generator of the same node, IDs of the same second
// could repeat.
func TestNoIDWithoutNeed(t *testing.T) {
	var last uint16
	for round := range 6 {
		u := loaded(t, "unique_ids", `{"node": "192.0.2.8"}`)
		id, err := uniqueid.ParseUniqueID(request{}.through(t, "{unique_id}", u))
		must(t, err)
		if counter := id.Fields().Counter; round > 0 && counter != last+1 {
			t.Errorf("the count went from %d to %d", last, counter)
		}
		last = id.Fields().Counter
		request{}.through(t, "hello", u)
	}
}
