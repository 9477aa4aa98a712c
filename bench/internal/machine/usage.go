package machine

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/procfs"
)

// usage is how much processor time was used up to a moment, in seconds: of the
// machine, and of this process with all that it has started.
type usage struct {
	at        time.Time
	all, ours float64
}

// UsedByOthers returns the part of the machine that other programs used while do
// was running: 1 is all of it. An error of do is returned as it is.
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
	return max(0, (after.all-before.all)-(after.ours-before.ours)) / whole, nil
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
	u.ours, err = ourSeconds(fs)
	return u, err
}

// ticksPerSecond is the unit of the kernel's accounts of processor time for
// programs, on all common systems.
const ticksPerSecond = 100

// ourSeconds sums up this process and its descendants, with those that have
// ended.
func ourSeconds(fs procfs.FS) (sum float64, err error) {
	all, err := fs.AllProcs()
	if err != nil {
		return 0, fmt.Errorf("listing processes: %w", err)
	}
	table := make(map[int]procfs.ProcStat, len(all))
	for _, p := range all {
		if stat, err := p.Stat(); err == nil { // else it has ended
			table[p.PID] = stat
		}
	}
	for pid, stat := range table {
		if descends(table, pid, os.Getpid()) {
			sum += float64(stat.UTime) + float64(stat.STime) + float64(stat.CUTime) + float64(stat.CSTime)
		}
	}
	return sum / ticksPerSecond, nil
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
