package recipes

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// answers is a command that waits until an address answers.
func answers(address string) string {
	return "until curl -sf -o answer " + address + "; do sleep 0.1; done\n"
}

// The example does what its comments say.
func TestExample(t *testing.T) {
	t.Parallel()
	text := readFile(t, "../../Caddyfile.example")
	var commands []string
	for _, match := range regexp.MustCompile(`(?m)^#     (.+)$`).FindAllStringSubmatch(text, -1) {
		commands = append(commands, strings.ReplaceAll(match[1], "go run ./cmd/caddy", "./caddy"))
	}
	if len(commands) != 5 {
		t.Fatalf("the example has the commands %q", commands)
	}
	run, look, free, turn, list := commands[0], commands[1], commands[2], commands[3], commands[4]
	// The commands wait for all that was started, so each is in a shell of its own.
	out := testcaddy.Shell(t, run+" 2>log &\n"+answers("localhost:8080/")+look+"\necho == free\n("+free+")\necho == turn\n("+turn+") >turns &\nuntil "+list+
		" | grep -q example_; do sleep 0.1; done\nwait $!\ncat turns\n", map[string]string{"Caddyfile.example": text})
	looked, rest, _ := strings.Cut(out, "== free")
	atOnce, turns, _ := strings.Cut(rest, "== turn")
	for _, of := range []struct{ name, text, pattern string }{
		{"the first request", looked, `(?m)^X-Request-Id: [0-9a-v]{20}\s`},
		{"the first request", looked, `(?m)^unique_id [A-Za-z0-9@-]{19}$`},
		{"without a queue", atOnce, `(?s)(no queue, ahead: counted to 1\s.*){2}`},
		{"with a queue", turns, `(?s)(\d ahead: counted to \d+\s+){8}`},
	} {
		if !regexp.MustCompile(of.pattern).MatchString(of.text) {
			t.Errorf("%s: no %s in\n%s", of.name, of.pattern, of.text)
		}
	}
	var counted []int
	for _, match := range regexp.MustCompile(`counted to (\d+)`).FindAllStringSubmatch(turns, -1) {
		number, _ := strconv.Atoi(match[1])
		counted = append(counted, number)
	}
	slices.Sort(counted)
	if len(slices.Compact(counted)) != 8 || counted[7]-counted[0] != 7 {
		t.Errorf("with a queue, updates were lost: %s", turns)
	}
}

// The quick start works as it stands there.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	const page = "quick-start.md"
	slow := filepath.Join(t.TempDir(), "slow")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", slow, "../../examples/slow").CombinedOutput(); err != nil {
		t.Fatalf("building the application: %v\n%s", err, out)
	}
	command := func(heading string, n int) string {
		return strings.Replace(strings.TrimSpace(blocks(t, page, heading, "sh")[n]), "go run ./examples/slow", slow, 1)
	}
	program := func(heading string) string { return command(heading, 0) }
	free, turns, list, ask := command("An application", 1), command("The first queue", 1), command("Look at it", 0), command("The first ID", 0)
	table, header := blocks(t, page, "Look at it", "text")[0], blocks(t, page, "The first ID", "text")[0]
	// Each command waits for all that its shell has started, so each has its own. A busy machine
	// may need longer than the page says until all wait, and until they are listed. Bug of this
	// test: by then, they were served.
	list = strings.Replace(list, "sleep 0.5", "until ./caddy serialize queues --prefix slow_ | grep -q 'waiting 2'; do sleep 0.1; done", 1)
	script := program("An application") + " 2>log &\napplication=$!\n" + answers("localhost:9000/") + "(" + free + ")\necho == next\n" +
		program("The first queue") + " 2>log2 &\ncaddy=$!\n" + answers("localhost:8080/") + "(" + turns + ")\necho == next\nkill -STOP $application\n" + list + "\nkill -CONT $application\necho == next\n" +
		"kill $caddy\nwait $caddy || true\ncp ids Caddyfile\n" + program("The first queue") + " 2>log3 &\n" + answers("localhost:8080/") + ask + "\n"
	out := testcaddy.Shell(t, script, map[string]string{
		"Caddyfile": blocks(t, page, "The first queue", "caddyfile")[0], "ids": blocks(t, page, "The first ID", "caddyfile")[0],
	})
	printed := strings.Split(out, "== next\n")
	if len(printed) != 4 {
		t.Fatalf("the commands printed %q", out)
	}
	if !strings.Contains(printed[0], ": 3 inside") && !strings.Contains(printed[0], ": 2 inside") {
		t.Errorf("without a queue, no two were inside together: %s", printed[0])
	}
	if strings.Count(printed[1], ": 1 inside") != 3 {
		t.Errorf("with a queue, each should be alone: %s", printed[1])
	}
	wantColumns(t, printed[2], table)
	if !regexp.MustCompile(`^X-Request-Id: [0-9a-v]{20}\s+$`).MatchString(printed[3]) {
		t.Errorf("the page shows %s, and there is %s", header, printed[3])
	}
}

// console divides a block into its command and what that shows.
func console(t *testing.T, block string) (command, shown string) {
	t.Helper()
	first, shown, _ := strings.Cut(block, "\n")
	command, ok := strings.CutPrefix(first, "$ ")
	if !ok {
		t.Fatalf("a block begins with %q", first)
	}
	return command, shown
}

// wantColumns compares the columns and the states of two tables of tickets. On a slow
// machine, one of several that wait may be inside already.
func wantColumns(t *testing.T, got, want string) {
	t.Helper()
	if !slices.Equal(slices.Compact(columns(got)), slices.Compact(columns(want))) {
		t.Errorf("columns and states %q; the page shows %q", columns(got), columns(want))
	}
}

// columns are the names of a table's columns, and the states of its tickets.
func columns(table string) (names []string) {
	for line := range strings.Lines(table) {
		switch fields := strings.Fields(line); {
		case len(fields) > 0 && fields[0] == "PLACE":
			names = append(names, fields...)
		case len(fields) > 1 && (fields[1] == "inside" || fields[1] == "waiting"):
			names = append(names, fields[1])
		}
	}
	return names
}

// What the pages show of IDs is what the commands print, except for IDs that are made
// anew.
func TestDocumentedIDs(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile(`(?m)^ *\$ (?:\./)?caddy (ids .*)\n((?:[^$\n` + "`" + `].*\n)*)`)
	for _, page := range []string{"quick-start.md", "ids.md"} {
		text := strings.NewReplacer("```sh\n", "$ ", "\n```\n\n```text\n", "\n").Replace(readFile(t, docs, page))
		for _, match := range pattern.FindAllStringSubmatch(text, -1) {
			args, want := strings.Fields(match[1]), unindent(match[2])
			got, errs, code := testcaddy.Output(t, args...)
			if args[1] == "new" { // as many, and but for the number of a shard as long
				ends := regexp.MustCompile(`\w{17,20}\n`)
				got, want = ends.ReplaceAllString(got, "x"), ends.ReplaceAllString(want, "x")
			}
			if code != 0 || got != want {
				t.Errorf("%s: caddy %s says, with exit code %d and %q,\n%s\nThe page says\n%s", page, match[1], code, errs, got, want)
			}
		}
	}
}

// unindent takes the indent of the first line off all lines.
func unindent(text string) string {
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	return regexp.MustCompile("(?m)^"+indent).ReplaceAllString(text, "")
}

// The example of compose.yaml shows what it says, without its containers: the commands
// that stand there, Caddy with the example's configuration, and PHP.
func TestComposeExample(t *testing.T) {
	t.Parallel()
	testcaddy.Need(t, "php", "apt-get install php-cli")
	folder, files := filepath.Join("..", "..", "examples", "compose"), make(map[string]string)
	for _, name := range []string{"Caddyfile", "counter.php", "try.sh"} {
		files[name] = readFile(t, folder, name)
	}
	// There are no containers with names, and no volume.
	files["Caddyfile"] = strings.NewReplacer("app:8000", "127.0.0.1:8000", "/var/lib/caddy/queues", "{$TMPDIR}/queues").Replace(files["Caddyfile"])
	compose := readFile(t, "../../compose.yaml")
	php, workers := commandIn(t, compose, "php"), regexp.MustCompile(`PHP_CLI_SERVER_WORKERS: "(\d+)"`).FindStringSubmatch(compose)
	if workers == nil {
		t.Fatal("compose.yaml does not say how many workers PHP has")
	}
	try := strings.NewReplacer("/try.sh", "./try.sh", "http://caddy", "http://localhost").Replace(commandIn(t, compose, "sh"))
	out := testcaddy.Shell(t, "PHP_CLI_SERVER_WORKERS="+workers[1]+" "+strings.ReplaceAll(php, "/app", "$PWD")+" >php.log 2>&1 &\n"+
		"./caddy run --config Caddyfile 2>log &\n"+answers("localhost/turn")+try+"\n", files)

	counted := regexp.MustCompile(`^free: 50 requests, the counter says (\d+)\nturn: 50 requests, the counter says (\d+)\n$`).FindStringSubmatch(out)
	if counted == nil {
		t.Fatalf("the example says\n%s", out)
	}
	// Two that write at once can also leave the digits of both.
	if free, err := strconv.Atoi(counted[1]); err != nil || free == 50 {
		t.Errorf("without a queue, the counter is right: %s", counted[1])
	}
	if counted[2] != "50" {
		t.Errorf("in the queue, of 50 requests, the counter has %s", counted[2])
	}
}

// commandIn is the command of compose.yaml that runs a program.
func commandIn(t *testing.T, compose, program string) string {
	t.Helper()
	match := regexp.MustCompile(`command: \["` + program + `", (.*)\]`).FindStringSubmatch(compose)
	if match == nil {
		t.Fatalf("compose.yaml has no command %s", program)
	}
	return program + " " + strings.NewReplacer(`"`, "", ",", "").Replace(match[1])
}

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
