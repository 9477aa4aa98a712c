package recipes

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// MediaWiki runs behind the recipe, as Debian has it, and 20 clients edit at the same time. If each
// edit is there once, none was lost and none ran twice. Bug: the recipe did not say that PHP must not
// work after its answer. MediaWiki then wrote to its database beside the next edit.
func TestSQLiteMediaWiki(t *testing.T) {
	const source = "/usr/share/mediawiki"
	if info, err := os.Stat(source + "/index.php"); err != nil || !info.Mode().IsRegular() {
		t.Skip("MediaWiki is missing; install it with: apt-get install mediawiki")
	}
	testcaddy.NeedPHP(t, "sqlite3", "mbstring", "xml", "intl")
	php := testcaddy.Need(t, "php", "apt-get install php-cli")
	testcaddy.NeedExtensions(t, php, "sqlite3", "mbstring", "xml", "intl")
	dir := testcaddy.SharedDir(t)
	for _, name := range []string{"data", "cache"} {
		check(t, os.Mkdir(filepath.Join(dir, name), 0o777))
	}
	install := exec.CommandContext(t.Context(), php, filepath.Join(source, "maintenance/install.php"), "--confpath", dir, "--dbtype", "sqlite",
		"--dbpath", filepath.Join(dir, "data"), "--server", "http://localhost", "--scriptpath", "", "--pass", "long-enough-for-it", "Wiki", "Admin")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("installing MediaWiki: %v\n%s", err, out)
	}
	settings := filepath.Join(dir, "LocalSettings.php")
	testcaddy.WriteFile(t, settings, readFile(t, settings)+strings.ReplaceAll(`
$wgCacheDirectory = 'DIR/cache';
$wgGroupPermissions['*']['noratelimit'] = true;
if (($_SERVER['REQUEST_METHOD'] ?? '') == 'POST') {
	$GLOBALS['work'] = fopen('DIR/work', 'c'); // until PHP is done with the request
	if (!flock($GLOBALS['work'], LOCK_EX | LOCK_NB)) {
		http_response_code(409);
		exit('not alone');
	}
}
`, "DIR", dir))
	check(t, exec.CommandContext(t.Context(), "chmod", "-R", "a+rwX", dir).Run())
	socket := filepath.Join(testcaddy.TempDir(t), "php")
	testcaddy.StartPHP(t, socket, phpLine(t))
	k := cook(t, "SQLite behind a web application", "timeout 20s", "timeout 10m", "reverse_proxy localhost:9000",
		fmt.Sprintf("root %s\n\tphp_fastcgi unix/%s {\n\t\tenv MW_CONFIG_FILE %s\n\t}", source, socket, settings))

	texts := make([]string, 20)
	var clients sync.WaitGroup
	for i := range texts {
		texts[i] = fmt.Sprintf("edit-%d-end", i)
		clients.Go(func() {
			form := url.Values{"action": {"edit"}, "format": {"json"}, "title": {"Shared"}, "appendtext": {"\n" + texts[i]}, "token": {`+\`}}
			a := <-testcaddy.Send(t, "POST", k.url+"api.php", form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
			if !strings.Contains(a.Text, `"result":"Success"`) {
				t.Errorf("the edit %s is answered %v", texts[i], a)
			}
		})
	}
	clients.Wait()
	has := want(t, k.get(t, "index.php?title=Shared&action=raw"), 200, "").Text
	for _, text := range texts {
		if n := strings.Count(has, text); n != 1 {
			t.Errorf("%s is there %d times", text, n)
		}
	}
}
