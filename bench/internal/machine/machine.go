// Package machine tells what machine this is, and who else uses it.
package machine

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Fact is the name and the value of one thing to know of the machine.
type Fact [2]string

// Describe tells what matters for the figures: processor, memory, system,
// compiler, the file systems of the directories, and the versions of programs.
func Describe(ctx context.Context, dirs ...string) []Fact {
	processor, load := runtime.GOARCH, "unknown"
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 && cpus[0].ModelName != "" {
			processor = cpus[0].ModelName
		}
		if l, err := fs.LoadAvg(); err == nil {
			load = fmt.Sprintf("%.2f, %.2f, %.2f", l.Load1, l.Load5, l.Load15)
		}
	}
	var info unix.Sysinfo_t
	var name unix.Utsname
	_, _ = unix.Sysinfo(&info), unix.Uname(&name)
	var systems []string
	for _, dir := range dirs {
		systems = append(systems, FileSystem(dir))
	}
	text := unix.ByteSliceToString
	return append([]Fact{
		{"processor", fmt.Sprintf("%d × %s", runtime.NumCPU(), processor)},
		{"memory", fmt.Sprintf("%.0f GiB", float64(info.Totalram)*float64(info.Unit)/(1<<30))},
		{"system", strings.Join([]string{text(name.Sysname[:]), text(name.Release[:]), text(name.Machine[:])}, " ")},
		{"Go", runtime.Version()},
		{"load average at the start", load},
		{"lock files on", strings.Join(systems, ", ")},
	}, programs(ctx)...)
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
	for _, name := range []string{"haproxy", "nginx", "apache2"} {
		path, err := exec.LookPath(name)
		if err != nil {
			path = "/usr/sbin/" + name
		}
		found := "not installed"
		if out, err := exec.CommandContext(ctx, path, "-v").CombinedOutput(); err == nil {
			found = version.FindString(string(out))
		}
		facts = append(facts, Fact{name, found})
	}
	return facts
}

// WriteFile writes facts as CSV.
func WriteFile(path string, facts []Fact) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the description of the machine: %w", err)
	}
	var rows [][]string
	for _, fact := range facts {
		rows = append(rows, fact[:])
	}
	if err := errors.Join(csv.NewWriter(f).WriteAll(rows), f.Close()); err != nil {
		return fmt.Errorf("writing the description of the machine: %w", err)
	}
	return nil
}

// ReadFile reads what WriteFile wrote.
func ReadFile(path string) (facts []Fact, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the description of the machine: %w", err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.FieldsPerRecord = len(Fact{})
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	for _, row := range rows {
		facts = append(facts, Fact(row))
	}
	return facts, nil
}
