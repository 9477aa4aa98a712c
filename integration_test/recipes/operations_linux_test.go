package recipes

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// The commands of the page for operators print what the page shows.
func TestOperationsConsole(t *testing.T) {
	t.Parallel()
	const (
		page      = "operations.md"
		caddyfile = `http://shop.example.com {
	unique_ids
	serialize {
		path {$TMPDIR}/queues
		prefix checkout_
	}
	reverse_proxy 127.0.0.1:1 {
		lb_try_duration 5m
	}
}
http://:8080 {
	serialize {
		path {$TMPDIR}/queues
		prefix shop_
	}
	respond up
}
`
	)
	var script strings.Builder
	script.WriteString("PATH=$PWD:$PATH\n./caddy run --config Caddyfile 2>log &\n" + answers("localhost:8080") +
		"for i in 41 42 43; do curl -s -X POST -H 'Host: shop.example.com' localhost/checkout/$i >answer$i &\ndone\n" +
		"until caddy serialize queues --prefix checkout_ | grep -q 'waiting 2'; do sleep 0.1; done\n" +
		`token=$(caddy serialize queues --prefix checkout_ --json | grep -oP '"token": ?"\K\d+' | tail -1)` + "\n")
	var shown []string
	for _, heading := range []string{"caddy serialize queues", "The admin API", "caddy serialize evict", "caddy serialize pause", "caddy serialize resume"} {
		for _, block := range blocks(t, page, heading, "console") {
			command, text := console(t, block)
			shown = append(shown, text)
			script.WriteString("echo '== next'\n" + strings.NewReplacer("%2Fvar%2Flib%2Fcaddy%2Fqueues", `$(printf %s "$PWD/queues" | sed 's|/|%2F|g')`,
				"/var/lib/caddy/queues", "$PWD/queues", "1795312155028791", "$token").Replace(command) + "\n")
		}
	}
	printed := strings.Split(testcaddy.Shell(t, script.String(), map[string]string{"Caddyfile": caddyfile}), "== next\n")[1:]
	if len(shown) != 5 || len(printed) != len(shown) {
		t.Fatalf("the page has %d commands, which printed %q", len(shown), printed)
	}
	wantColumns(t, printed[0], shown[0])
	api := blocks(t, page, "The admin API", "json")[0]
	if got, want := fields(printed[1]), fields(api); !slices.Equal(got, want) {
		t.Errorf("the admin API answers with %q; the page shows %q", got, want)
	}
	vary := regexp.MustCompile(`\d{16}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|/\S+/queues`)
	for i := 2; i < len(shown); i++ {
		if got, want := vary.ReplaceAllString(printed[i], "…"), vary.ReplaceAllString(shown[i], "…"); got != want {
			t.Errorf("a command printed %q; the page shows %q", got, want)
		}
	}
}

// A storm of refusals writes few lines with the configuration that the page shows, also if
// there is an access log. Bug: 3,000 requests wrote 2,941 lines.
func TestStormOfRefusals(t *testing.T) {
	t.Parallel()
	shown := strings.Replace(blocks(t, "operations.md", "Logs", "caddyfile")[1], "example.com", "http://localhost", 1) + `
http://:9000 {
	reverse_proxy 127.0.0.1:1 {
		lb_try_duration 5m
	}
}
http://:8080 {
	respond up
}
`
	script := "./caddy run --config Caddyfile 2>log &\n" + answers("localhost:8080") + `
curl -s localhost &
curl -s localhost &
until ./caddy serialize queues --json | grep -q '"waiting": 1'; do sleep 0.1; done
SECONDS=0
yes 'url = localhost' | head -500 | curl -s -K - -w '%{http_code}\n' | sort | uniq -c
grep -c '"status":503' log || true
echo $SECONDS
`
	for name, c := range map[string]struct {
		logs    string // more of the site
		sampled string
		loggers int
	}{
		"as shown":                {"", "http.log.error", 1},
		"access log, left out":    {"log\nhandle_errors 503 {\nlog_skip\n}\n", "http.log.error", 0},
		"access log, sampled too": {"log\n", "http.log.error http.log.access", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caddyfile := strings.NewReplacer("http://localhost {\n", "http://localhost {\n"+c.logs, "http.log.error", c.sampled).Replace(shown)
			fields := strings.Fields(testcaddy.Shell(t, script, map[string]string{"Caddyfile": caddyfile}))
			if len(fields) != 4 || fields[0] != "500" || fields[1] != "503" {
				t.Fatalf("expected 500 refusals, got %q", fields)
			}
			lines, err := strconv.Atoi(fields[2])
			seconds, secondsErr := strconv.Atoi(fields[3])
			// Each logger writes ten lines in a second, and then one of a hundred.
			if least, most := 10*c.loggers, (10*(seconds+2)+5)*c.loggers; err != nil || secondsErr != nil || lines < least || lines > most {
				t.Errorf("500 refusals within %s s wrote %s lines; expected %d to %d", fields[3], fields[2], least, most)
			}
		})
	}
}

// fields are the names of fields in JSON.
func fields(text string) []string {
	names := regexp.MustCompile(`"\w+":`).FindAllString(text, -1)
	slices.Sort(names)
	return slices.Compact(names)
}
