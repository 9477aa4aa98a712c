package recipes

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// program is a whole program of the page about the libraries, built in a directory of its own.
type program struct {
	t   *testing.T
	dir string
}

// programUnder builds the program below a heading.
func programUnder(t *testing.T, heading string) program {
	t.Helper()
	t.Parallel()
	text, err := os.ReadFile("../../docs/libraries.md")
	check(t, err)
	_, section, _ := strings.Cut(string(text), "## "+heading+"\n")
	_, code, _ := strings.Cut(section, "```go\n")
	code, _, found := strings.Cut(code, "```\n")
	if !found {
		t.Fatalf("there is no program below %q", heading)
	}
	p := program{t, testcaddy.TempDir(t)}
	source := filepath.Join(p.dir, "main.go")
	testcaddy.WriteFile(t, source, code)
	out, err := exec.Command("go", "build", "-o", filepath.Join(p.dir, "program"), source).CombinedOutput()
	if err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	return p
}

// start starts the program in its directory.
func (p program) start(env string, args ...string) *testprocess.Process {
	p.t.Helper()
	cmd := exec.Command(filepath.Join(p.dir, "program"), args...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), env)
	return testprocess.Start(p.t, cmd)
}

// run runs the program to its end, and returns its lines.
func (p program) run(env string, args ...string) []string {
	p.t.Helper()
	process := p.start(env, args...)
	<-process.Ended
	if process.Err != nil {
		p.t.Fatalf("%v\n%s", process.Err, process.Log)
	}
	return strings.Fields(strings.ReplaceAll(strings.TrimSpace(process.Log.String()), " ", "_"))
}

func TestLibraryJob(t *testing.T) {
	p := programUnder(t, "A job that must not run twice")
	first := p.start("")
	wait.Until(t, "the job runs", func() bool { return strings.Contains(first.Log.String(), "at work") })
	if got := p.run(""); !slices.Equal(got, []string{"the_last_run_is_still_at_work"}) {
		t.Errorf("beside the first: %q", got)
	}
	<-first.Ended
	if got := p.run(""); !slices.Equal(got, []string{"at_work"}) {
		t.Errorf("after the first: %q", got)
	}
}

func TestLibraryThreeAtATime(t *testing.T) {
	p := programUnder(t, "Three at a time")
	var all []*testprocess.Process
	for range 5 {
		all = append(all, p.start("", "a.jpg", "b.jpg"))
	}
	for _, process := range all {
		<-process.Ended
		if process.Err != nil || strings.Count(process.Log.String(), "resized") != 2 {
			t.Errorf("%v: %s", process.Err, process.Log)
		}
	}
}

func TestLibraryFencingToken(t *testing.T) {
	p := programUnder(t, "Many machines, with a fencing token")
	address := testprocess.FreeAddr(t)
	server := testcaddy.Need(t, "redis-server", "redis-server")
	testprocess.Start(t, exec.Command(server, "--bind", "127.0.0.1", "--port", address[strings.LastIndex(address, ":")+1:], "--save", "", "--dir", p.dir))
	token := regexp.MustCompile(`entry_3,_written_with_token_\d+$`)
	first, second := p.run("REDIS="+address), p.run("REDIS="+address)
	if len(first) != 3 || !token.MatchString(first[2]) || len(second) != 3 || second[2] <= first[2] {
		t.Errorf("%q, then %q", first, second)
	}
}

func TestLibraryDatabase(t *testing.T) {
	p := programUnder(t, "IDs in a database")
	_, host := startPostgreSQL(t)
	where := "DATABASE=host=" + host + " user=shop dbname=shop"
	first, second := p.run(where), p.run(where)
	if len(first) != 1 || !strings.HasPrefix(first[0], "the_first_order_is_") || !slices.Equal(first, second) {
		t.Errorf("%q, then %q", first, second)
	}
}

func TestLibraryLogs(t *testing.T) {
	p := programUnder(t, "IDs in logs")
	address := testprocess.FreeAddr(t)
	process := p.start("ADDRESS=" + address)
	var made string
	wait.Eventually(t, "it answers", func() error {
		answer, err := http.Get("http://" + address)
		if err == nil {
			made = answer.Header.Get("X-Request-ID")
			err = answer.Body.Close()
		}
		return err
	})
	given := testcaddy.Get(t, "http://"+address, "X-Request-ID", "cbpvimguo4hkaps9lf6g").Header.Get("X-Request-ID")
	if len(made) != 20 || given != "cbpvimguo4hkaps9lf6g" {
		t.Errorf("the answers have %q and %q", made, given)
	}
	for _, id := range []string{made, given} {
		wait.Until(t, "both lines of a request have its ID", func() bool { return strings.Count(process.Log.String(), `"txid":"`+id+`"`) == 2 })
	}
}

func TestLibraryCallNumbers(t *testing.T) {
	p := programUnder(t, "Short numbers from several processes")
	lines := slices.Concat(p.run(""), p.run(""), p.run(""))
	slices.Sort(lines)
	if len(slices.Compact(slices.Clone(lines))) != 9 || len(lines[0]) != len("call_")+8 {
		t.Errorf("%q", lines)
	}
}
