//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// noting is the beginning of a script that notes in a log when it begins and ends.
const noting = `<?php
function note($what) { file_put_contents("log", $_GET["name"] . " $what\n", FILE_APPEND | LOCK_EX); }
ignore_user_abort(true);
while (ob_get_level()) ob_end_clean();
note("begins");
`

// notes returns what scripts in a directory have noted. Only the names that begin so count.
func notes(t *testing.T, root, prefix string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "log"))
	if !os.IsNotExist(err) {
		check(t, err)
	}
	for line := range strings.Lines(string(text)) {
		if note, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
			found = append(found, note)
		}
	}
	return found
}

// A turn lasts until php-fpm ends the request, whatever the script has sent before: a part
// of its page or all of it, with its length or without. The status, the buffer and the
// client's speed do not matter, nor whether the client is still there.
func TestPHPWorksOn(t *testing.T) {
	t.Parallel()
	root, socket := testcaddy.ServePHP(t, map[string]string{
		"next.php":   noting,
		"silent.php": noting + `usleep(400000); note("ends"); echo "page";`,
		"flush.php":  noting + `echo str_repeat(" ", 65536); flush(); usleep(400000); echo str_repeat(".", 65536); flush(); note("ends");`,
		"length.php": noting + `$page = str_repeat("x", (int) $_GET["size"]); header("Content-Length: " . strlen($page));
			header("Connection: close"); echo $page; flush(); usleep(400000); note("ends");`,
		"empty.php":    noting + `http_response_code((int) $_GET["status"]); flush(); usleep(400000); note("ends");`,
		"finishes.php": noting + `echo "page"; fastcgi_finish_request(); usleep(2000000); note("ends");`,
	})
	queue := 0
	for _, buffer := range []string{"", "response_buffer 0"} {
		c := start(t, setup{tls: true, env: map[string]string{"PHP": socket, "ROOT": root},
			site: "root {$ROOT}\nserialize {\npath {$DIR}\nprefix {query.queue}_\n" + buffer + "\n}\nphp_fastcgi unix/{$PHP}"})
		for _, path := range []string{
			"/length.php?size=4", "/length.php?size=3000", "/length.php?size=200000", "/empty.php?status=204", "/empty.php?status=304",
			"/finishes.php?", "/silent.php?gone=1.1", "/silent.php?gone=2", "/flush.php?gone=1.1", "/flush.php?gone=2",
		} {
			queue++
			q := fmt.Sprintf("q%02d", queue)
			t.Run(path+buffer, func(t *testing.T) {
				t.Parallel()
				path, version, gone := strings.Cut(path, "gone=")
				url := c.url + path + "&queue=" + q + "&name=" + q + "first"
				begun := func() bool { return len(notes(t, root, q+"first")) > 0 }
				if gone {
					hangUpAfterTenth(t, newClient(t, version), url, begun)
				} else {
					first := c.getting(strings.TrimPrefix(url, c.url))
					wait.Until(t, "the first has begun", begun)
					defer func() { check(t, (<-first).Err) }()
				}
				c.get("/next.php?queue="+q+"&name="+q+"second").Want(t, http.StatusOK)
				want := "first begins, first ends, second begins"
				if path == "/finishes.php?" { // for php-fpm, the request is over then
					want = "first begins, second begins"
				}
				if got := strings.Join(notes(t, root, q), ", "); got != want {
					t.Errorf("the scripts ran like this: %s", got)
				}
			})
		}
	}
}
