// Package machine tells what machine this is, and who else uses it.
package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Fact is something about the machine.
type Fact struct {
	What  string `csv:"what"`
	Which string `csv:"which"`
}

// Describe tells what matters for the figures: processor, memory, system, compiler,
// the file systems of the directories, and the versions of programs.
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
	facts := []Fact{
		{"date", time.Now().UTC().Format(time.DateOnly)},
		{"processor", fmt.Sprintf("%d × %s", runtime.NumCPU(), processor)},
		{"memory", fmt.Sprintf("%.0f GiB", float64(info.Totalram)*float64(info.Unit)/(1<<30))},
		{"system", strings.Join([]string{text(name.Sysname[:]), text(name.Release[:]), text(name.Machine[:])}, " ")},
		{"Go", runtime.Version()},
		{"load average at the start", load},
		{"lock files on", strings.Join(systems, ", ")},
	}
	for _, program := range []string{"haproxy", "nginx", "apache2", "php-fpm"} {
		facts = append(facts, Fact{program, Version(ctx, program)})
	}
	return facts
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

// Tmpfs is the file system in memory.
const Tmpfs = "tmpfs"

var version = regexp.MustCompile(`\d+\.\d+[-+.\w]*`)

// Version is that of a program that is installed.
func Version(ctx context.Context, program string) string {
	path, err := Find(program)
	if err != nil {
		return "not installed"
	}
	out, err := exec.CommandContext(ctx, path, "-v").CombinedOutput()
	if err != nil {
		return "unknown"
	}
	return version.FindString(string(out))
}

// Missing is the error where a program is not installed.
type Missing struct{ Program, Package string }

func (m *Missing) Error() string {
	return fmt.Sprintf("%s is not installed; to have it: apt-get install %s", m.Program, m.Package)
}

// Find returns the path of a program, which may have its version in its name, as
// Debian's php-fpm has.
func Find(program string) (string, error) {
	for _, name := range []string{program, "/usr/sbin/" + program, "/usr/sbin/" + program + "8.2", "/usr/sbin/" + program + "8.4"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", &Missing{program, program}
}

// UsedByOthers returns the percentage of the machine that other programs used while
// do was running. An error of do is returned as it is.
func UsedByOthers(do func() error) (float64, error) {
	before, err := usageNow()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := usageNow()
	if err != nil {
		return 0, err
	}
	whole := after.at.Sub(before.at).Seconds() * float64(runtime.NumCPU())
	return 100 * max(0, (after.all-before.all)-(after.ours-before.ours)) / whole, nil
}

// usage is how much processor time was used up to a moment, in seconds: of the
// machine, and of this process with all that it has started.
type usage struct {
	at        time.Time
	all, ours float64
}

func usageNow() (u usage, err error) {
	u.at = time.Now()
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return u, fmt.Errorf("opening /proc: %w", err)
	}
	stat, err := fs.Stat()
	if err != nil {
		return u, fmt.Errorf("reading the processor's accounts: %w", err)
	}
	cpu := stat.CPUTotal
	u.all = cpu.User + cpu.Nice + cpu.System + cpu.IRQ + cpu.SoftIRQ + cpu.Steal
	all, err := fs.AllProcs()
	if err != nil {
		return u, fmt.Errorf("listing processes: %w", err)
	}
	table := make(map[int]procfs.ProcStat, len(all))
	for _, p := range all {
		if stat, err := p.Stat(); err == nil { // else it has ended
			table[p.PID] = stat
		}
	}
	const ticksPerSecond = 100 // on all common systems
	for pid, stat := range table {
		if descends(table, pid, os.Getpid()) {
			u.ours += (float64(stat.UTime) + float64(stat.STime) + float64(stat.CUTime) + float64(stat.CSTime)) / ticksPerSecond
		}
	}
	return u, nil
}

func descends(table map[int]procfs.ProcStat, pid, from int) bool {
	for range 100 {
		if pid == from {
			return true
		}
		pid = table[pid].PPID
	}
	return false
}

// ProcessorTime is how long this process has been at work, on all processors. Unlike
// the clock, it does not count what other programs do meanwhile.
func ProcessorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// FileLimit is how many files each program may have open.
func FileLimit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, 1<<20))
}
