//go:build unix

package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// counterScript counts its runs, and loses some if two run at once.
const counterScript = `<?php
$count = (int) @file_get_contents("count");
usleep(5000);
file_put_contents("count", $count + 1);
echo $count + 1;
`

func TestPHPCounter(t *testing.T) {
	t.Parallel()
	const clients, each = 8, 5
	tests := []struct {
		name      string
		directive string
		lost      bool
	}{
		{"without serialize", "", true},
		{"with serialize", "serialize {\n path {$DIR}\n}", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			php := startPHP(t, map[string]string{"counter.php": counterScript})
			c := start(t, setup{env: php.env(), site: `
				root {$ROOT}
				` + test.directive + `
				php_fastcgi unix/{$PHP}`})
			client := newClient(t, "1.1")
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					for range each {
						if r := do(client, "GET", c.url+"/counter.php", ""); r.StatusCode != http.StatusOK {
							t.Error(r)
						}
					}
				})
			}
			all.Wait()
			count, err := strconv.Atoi(php.read(t, "count"))
			check(t, err)
			t.Logf("%d requests, counted %d", clients*each, count)
			if lost := count != clients*each; lost != test.lost {
				t.Errorf("%d requests, counted %d", clients*each, count)
			}
		})
	}
}

func TestPHPSeesIDs(t *testing.T) {
	t.Parallel()
	php := startPHP(t, map[string]string{"ids.php": `<?php
		echo json_encode([$_SERVER["UNIQUE_ID"] ?? null, $_SERVER["HTTP_X_REQUEST_ID"] ?? null]);`})
	c := start(t, setup{env: php.env(), site: `
		root {$ROOT}
		unique_ids
		header X-Unique-Id {unique_id}
		request_header X-Request-Id {http.request.txid}
		header X-Request-Id {http.request.txid}
		serialize {
			path {$DIR}
		}
		php_fastcgi unix/{$PHP} {
			env UNIQUE_ID {unique_id}
		}`})
	r := c.get("/ids.php", "X-Request-Id", "forged").Want(t, http.StatusOK)
	var seen [2]string
	check(t, json.Unmarshal([]byte(r.Text), &seen))
	if want := [2]string{r.Header.Get("X-Unique-Id"), r.Header.Get("X-Request-Id")}; seen != want {
		t.Errorf("PHP sees %q, the client %q", seen, want)
	}
	if _, err := uniqueid.ParseUniqueID(seen[0]); err != nil {
		t.Error(err)
	}
	if _, err := uniqueid.ParseTXID(seen[1]); err != nil {
		t.Error(err)
	}
}

// slowScript takes a second, and notes when it begins and ends.
const slowScript = `<?php
$name = $_GET["name"];
file_put_contents("log", "$name begins\n", FILE_APPEND | LOCK_EX);
if (isset($_GET["flush"])) {
	echo str_repeat(" ", 65536);
	flush();
}
for ($i = 0; $i < 10; $i++) {
	usleep(100000);
	if (isset($_GET["flush"])) {
		echo str_repeat(".", 65536);
		flush();
	}
}
file_put_contents("log", "$name ends\n", FILE_APPEND | LOCK_EX);
echo "served $name";
`

// A PHP script does not stop when its client does. The next request must wait
// until it has ended.
func TestPHPClientHangsUp(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"", "&flush"} {
		for _, version := range []string{"1.1", "2"} {
			t.Run(fmt.Sprintf("HTTP/%s%s", version, query), func(t *testing.T) {
				t.Parallel()
				php := startPHP(t, map[string]string{"slow.php": slowScript})
				c := start(t, setup{tls: true, env: php.env(), site: `
					root {$ROOT}
					serialize {
						path {$DIR}
					}
					php_fastcgi unix/{$PHP}`})
				hangUpAfterTenth(t, newClient(t, version), c.url+"/slow.php?name=first"+query, func() bool {
					return strings.Contains(php.read(t, "log"), "first begins")
				})
				c.get("/slow.php?name=second").Want(t, http.StatusOK)
				const want = "first begins\nfirst ends\nsecond begins\nsecond ends"
				if got := php.read(t, "log"); got != want {
					t.Errorf("the scripts ran like this:\n%s\nwant:\n%s", got, want)
				}
			})
		}
	}
}
