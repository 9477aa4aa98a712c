// Package machine tells what machine this is, and who else uses it.
package machine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Fact is one thing to know of the machine.
type Fact struct{ Name, Value string }

// Describe tells what matters for the figures: processor, memory, system,
// compiler, the file systems of the directories, and the versions of programs.
func Describe(ctx context.Context, dirs []string) []Fact {
	facts := []Fact{
		{"processor", fmt.Sprintf("%d × %s", runtime.NumCPU(), processor())},
		{"memory", memory()},
		{"system", system()},
		{"Go", runtime.Version()},
		{"load average at the start", loadAverage()},
	}
	var systems []string
	for _, dir := range dirs {
		systems = append(systems, FileSystem(dir))
	}
	facts = append(facts, Fact{"lock files on", strings.Join(systems, ", ")})
	return append(facts, programs(ctx)...)
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func memory() string {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.0f GiB", float64(info.Totalram)*float64(info.Unit)/(1<<30))
}

func system() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return runtime.GOOS
	}
	return fmt.Sprintf("%s %s %s", unix.ByteSliceToString(name.Sysname[:]), unix.ByteSliceToString(name.Release[:]), unix.ByteSliceToString(name.Machine[:]))
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return "unknown"
	}
	return strings.Join(fields[:3], ", ")
}

var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.TMPFS_MAGIC: "tmpfs", unix.XFS_SUPER_MAGIC: "xfs",
	unix.BTRFS_SUPER_MAGIC: "btrfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.F2FS_SUPER_MAGIC: "f2fs",
}

// FileSystem names the kind of file system that a directory lies on.
func FileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	if name, ok := fileSystems[int64(st.Type)]; ok { //nolint:unconvert // it is 32 bits wide on some systems
		return name
	}
	return fmt.Sprintf("%#x", st.Type)
}

var version = regexp.MustCompile(`\d+\.\d+[-+.\w]*`)

// programs tells the versions of the other servers that are installed.
func programs(ctx context.Context) (facts []Fact) {
	for _, p := range [][2]string{{"haproxy", "-v"}, {"nginx", "-v"}, {"apache2", "-v"}} {
		path, err := exec.LookPath(p[0])
		if err != nil {
			path = "/usr/sbin/" + p[0]
		}
		out, err := exec.CommandContext(ctx, path, p[1]).CombinedOutput()
		if err != nil {
			facts = append(facts, Fact{p[0], "not installed"})
			continue
		}
		facts = append(facts, Fact{p[0], version.FindString(string(out))})
	}
	return facts
}

// WriteFile writes facts as CSV.
func WriteFile(path string, facts []Fact) error {
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	for _, f := range facts {
		if err := w.Write([]string{f.Name, f.Value}); err != nil {
			return fmt.Errorf("writing the description of the machine: %w", err)
		}
	}
	w.Flush()
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the description of the machine: %w", err)
	}
	return nil
}

// ReadFile reads what WriteFile wrote.
func ReadFile(path string) (facts []Fact, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the description of the machine: %w", err)
	}
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord = 2
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	for _, row := range rows {
		facts = append(facts, Fact{row[0], row[1]})
	}
	return facts, nil
}
