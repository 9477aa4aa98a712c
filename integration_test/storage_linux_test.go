package integration_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// storageFault breaks the storage of a Caddy process and mends it again.
type storageFault struct {
	name   string
	setup  func(t *testing.T, s *setup)
	broken func(t *testing.T, c *caddy) (mend func())
	says   string // in the log
}

var storageFaults = []storageFault{
	{
		name: "directory replaced by a file",
		broken: func(t *testing.T, c *caddy) func() {
			check(t, os.RemoveAll(c.dir))
			testcaddy.WriteFile(t, c.dir, "")
			return func() {
				check(t, os.Remove(c.dir))
				check(t, os.Mkdir(c.dir, 0o755))
			}
		},
		says: "not a directory",
	},
	{
		name: "permissions taken away",
		setup: func(t *testing.T, s *setup) {
			s.user, s.dir = nobody(t), testcaddy.TempDir(t)
			check(t, os.Chown(s.dir, int(s.user.uid), int(s.user.gid)))
		},
		broken: func(t *testing.T, c *caddy) func() {
			check(t, os.Chmod(c.dir, 0o500))
			return func() { check(t, os.Chmod(c.dir, 0o700)) }
		},
		says: "chown", // bug: only a Caddy that started said so
	},
}

// onTmpfs gives a Caddy process a small file system of its own. No other
// process sees it, and it ends with the process.
func onTmpfs(t *testing.T, s *setup, options string) {
	t.Helper()
	testcaddy.NeedRoot(t, "mount")
	mount := fmt.Sprintf(`mount -t tmpfs -o mode=0700,%s tmpfs "$DIR" && exec "$0" "$@"`, options)
	s.launcher = []string{"unshare", "--mount", "sh", "-c", mount}
}

// Bug: under systemd's ProtectSystem, nothing said what makes the directory writable.
func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	s := setup{site: serialized, dir: testcaddy.TempDir(t)}
	onTmpfs(t, &s, "ro")
	if log := startInVain(t, s); !strings.Contains(log, "ReadWritePaths="+s.dir+" ") {
		t.Errorf("the log says:\n%s", log)
	}
}

// If the storage fails, every request is refused with 503 and never reaches the upstream;
// the log names path and error. When the storage works again, so do the queues, without a
// restart.
func TestStorageFails(t *testing.T) {
	t.Parallel()
	for _, fault := range storageFaults {
		for _, cold := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, before the first request %t", fault.name, cold), func(t *testing.T) {
				t.Parallel()
				s := setup{site: `
					serialize /hello off
					respond /hello hello
					serialize {
						path {$DIR}
						error_code 409
					}
					reverse_proxy {$UPSTREAM}
					handle_errors {
						respond "{http.serialize.reason}"
					}`}
				if fault.setup != nil {
					fault.setup(t, &s)
				}
				c := start(t, s)
				client := newClient(t, "1.1")
				do(client, "GET", c.url+"/hello", "").Want(t, http.StatusOK) // connects
				if !cold {
					do(client, "GET", c.url+"/?name=first", "").Want(t, http.StatusOK)
				}

				mend := fault.broken(t, c)
				for range 10 {
					r := do(client, "GET", c.url+"/?name=refused", "").Want(t, http.StatusServiceUnavailable)
					wantRetryAfter(t, r)
					if r.Text != "storage" {
						t.Errorf("{http.serialize.reason} is %q, want storage", r.Text)
					}
				}
				line := c.wantRefusalLogged("storage", "serializer_")
				if line.Text("level") != "error" || !strings.Contains(line.Text("error"), c.dir) || !strings.Contains(line.Text("error"), fault.says) {
					t.Errorf("the log does not name both path and error (%q): %v", fault.says, line)
				}
				// Bug: the lists showed an empty queue while everybody was refused.
				if list := c.API("GET", "/serialize/queues", "").Text; !strings.Contains(list, `"error":`) {
					t.Errorf("the list is %s", list)
				}
				mend()
				do(client, "GET", c.url+"/?name=last", "").Want(t, http.StatusOK)
				if list := c.API("GET", "/serialize/queues", "").Text; strings.Contains(list, `"error":`) {
					t.Errorf("mended, the list is %s", list)
				}
				c.WantNever("refused")
				c.awaitTickets(0)
			})
		}
	}
}

// Bug: requests that were inside one queue waited for themselves at another one of the directory
// after that was replaced, and all queues of the directory stood still. A reload changes nothing.
func TestNestedInReplacedDirectory(t *testing.T) {
	t.Parallel()
	for name, outer := range map[string]string{
		"serialize": "serialize outer_ {\npath {$DIR}\ntimeout 0\n}",
		"once":      "once {\npath {$DIR}\nscope none\nmethods GET\nkey {query.name}\n}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup{site: "route {\n" + outer + "\nforward_auth {$UPSTREAM} {\nuri /between?gate\n}\nserialize inner_ {\npath {$DIR}\ntimeout 0\n}\nreverse_proxy {$UPSTREAM}\n}"}
			c := start(t, s)
			inside := c.getting("/?name=inside")
			c.awaitHit("between")
			check(t, os.Rename(c.dir, c.dir+".old"))
			t.Cleanup(func() { check(t, os.RemoveAll(c.dir+".old")) })
			newcomer := c.getting("/?name=newcomer")
			check(t, c.reload(s))
			c.Open("between")
			c.wantServed(inside, newcomer)
			c.awaitTickets(0)
		})
	}
}
