package testcaddy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// Shell runs a script as somebody does who follows the documentation: in a directory with
// these files and ./caddy, where all ports are free. It returns what the script wrote. What
// it has started ends with it.
func Shell(t testing.TB, script string, files map[string]string) string {
	t.Helper()
	NeedRoot(t, "make a network")
	Need(t, "ip", "apt-get install iproute2")
	Need(t, "curl", "apt-get install curl")
	cmd := Command(t)
	for name, text := range files {
		WriteFile(t, filepath.Join(cmd.Dir, name), text)
	}
	if err := os.Symlink(cmd.Path, filepath.Join(cmd.Dir, "caddy")); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "timeout", "--signal=KILL", "120", "unshare", "--net", "--pid", "--fork", "--kill-child",
		"bash", "-c", "set -eu\nip link set lo up\n"+script)
	run.Dir, run.WaitDelay = cmd.Dir, cmd.WaitDelay
	run.Env = slices.Concat(cmd.Env, []string{"TMPDIR=" + cmd.Dir, "XDG_DATA_HOME=" + filepath.Join(cmd.Dir, "data")})
	out, errs, code := OutputOf(t, run)
	if code != 0 {
		t.Fatalf("exit code %d of\n%s\n%s%s", code, script, out, errs)
	}
	return out
}
