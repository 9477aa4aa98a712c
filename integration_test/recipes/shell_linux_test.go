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
