package recipes

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

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
