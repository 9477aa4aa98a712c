package testcaddy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// npmRoot is where npm's modules are. npm needs a second to say so.
var npmRoot = sync.OnceValues(exec.Command("npm", "root", "--global").Output)

// NeedModule returns the path of a file of a Node.js module. It skips the test if that is missing.
func NeedModule(t testing.TB, module, file string) string {
	t.Helper()
	Need(t, "node", "apt-get install nodejs")
	Need(t, "npm", "apt-get install npm")
	root, err := npmRoot()
	if err != nil {
		t.Fatalf("asking npm where its modules are: %v", err)
	}
	path := filepath.Join(strings.TrimSpace(string(root)), module, file)
	if found, err := os.Stat(path); err != nil || found.Size() == 0 {
		t.Skipf("%s is missing; install it with: npm install --global %s (%v)", module, module, err)
	}
	return path
}
