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

// These tests run two applications, as Debian has them, behind the recipes: 20 clients edit
// at the same time. If each edit is there once, none was lost and none ran twice.

// editAll calls edit at the same time for 20 clients, with a text of their own, and returns
// all texts.
func editAll(edit func(text string)) (texts []string) {
	var clients sync.WaitGroup
	for client := range 20 {
		text := fmt.Sprintf("edit-%d-end", client)
		texts = append(texts, text)
		clients.Go(func() { edit(text) })
	}
	clients.Wait()
	return texts
}

// wantOnce fails the test unless each of the texts stands once in what the application has.
func wantOnce(t *testing.T, has string, texts []string) {
	t.Helper()
	for _, text := range texts {
		if n := strings.Count(has, text); n != 1 {
			t.Errorf("%s is there %d times", text, n)
		}
	}
}

// post sends a form.
func (k *kitchen) post(t *testing.T, path string, fields ...string) testcaddy.Answer {
	t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return <-testcaddy.Send(t, "POST", k.url+path, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
}

// needDebian skips the test if an application of Debian is missing.
func needDebian(t *testing.T, name string) (dir string) {
	t.Helper()
	dir = "/usr/share/" + name
	if info, err := os.Stat(dir + "/index.php"); err != nil || !info.Mode().IsRegular() {
		t.Skipf("%s is missing; install it with: apt-get install %[1]s", name)
	}
	return dir
}

// DokuWiki keeps pages, their history and one list of all changes in files. To show a page, a
// browser sends five requests.
func TestPHPApplicationDokuWiki(t *testing.T) {
	source := needDebian(t, "dokuwiki")
	testcaddy.NeedPHP(t, "xml", "mbstring")
	root := filepath.Join(testcaddy.SharedDir(t), "wiki")
	check(t, exec.CommandContext(t.Context(), "cp", "-rL", source, root).Run())
	check(t, exec.CommandContext(t.Context(), "cp", "-rL", "/etc/dokuwiki", filepath.Join(root, "conf")).Run())
	check(t, os.Remove(filepath.Join(root, "inc/preload.php"))) // it leads to /etc and /var
	testcaddy.WriteFile(t, filepath.Join(root, "conf/local.php"), `<?php $conf["useacl"] = 0; $conf["savedir"] = "./data";`)
	for _, dir := range strings.Fields("attic cache index locks log media media_attic media_meta meta pages tmp") {
		dir = filepath.Join(root, "data", dir)
		check(t, os.MkdirAll(dir, 0o777))
		check(t, os.Chmod(dir, 0o777))
	}
	socket := filepath.Join(testcaddy.TempDir(t), "php")
	testcaddy.StartPHP(t, socket, phpLine(t))
	k := cookPHP(t, root, socket, true, "timeout 30s", "timeout 10m") // for a machine that has much else to do

	view := func(page string) {
		var answers []<-chan testcaddy.Answer
		for _, path := range []string{"doku.php?id=" + page, "lib/exe/css.php?t=dokuwiki", "lib/exe/jquery.php", "lib/exe/js.php?t=dokuwiki",
			"lib/exe/taskrunner.php?id=" + page} {
			answers = append(answers, k.get(t, path))
		}
		for _, answer := range answers {
			if a := <-answer; a.Err != nil || a.StatusCode != 200 {
				t.Errorf("a part of the page %s is %v", page, a)
			}
		}
	}
	texts := editAll(func(text string) {
		a := k.post(t, "doku.php", "id", text, "do[save]", "1", "prefix", ".", "suffix", "", "date", "", "wikitext", "text of "+text, "summary", text)
		if a.Err != nil || a.StatusCode != 302 {
			t.Errorf("the edit %s is answered %v", text, a)
		}
		view(text)
	})
	for _, text := range texts {
		if page := readFile(t, root, "data/pages", text+".txt"); page != "text of "+text {
			t.Errorf("the page %s is %q", text, page)
		}
	}
	var summaries []string // the last field of a line
	for line := range strings.Lines(readFile(t, root, "data/meta/_dokuwiki.changes")) {
		summaries = append(summaries, strings.Split(line, "\t")[5])
	}
	wantOnce(t, strings.Join(summaries, "\n"), texts)
}

// Bug: the recipe did not say that PHP must not work after its answer. MediaWiki then wrote to
// its database beside the next edit.
func TestSQLiteMediaWiki(t *testing.T) {
	source := needDebian(t, "mediawiki")
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

	texts := editAll(func(text string) {
		a := k.post(t, "api.php", "action", "edit", "format", "json", "title", "Shared", "appendtext", "\n"+text, "token", `+\`)
		if !strings.Contains(a.Text, `"result":"Success"`) {
			t.Errorf("the edit %s is answered %v", text, a)
		}
	})
	wantOnce(t, want(t, k.get(t, "index.php?title=Shared&action=raw"), 200, "").Text, texts)
}
