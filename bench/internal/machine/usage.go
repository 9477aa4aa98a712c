package machine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of the kernel's accounts of processor time for
// programs, on all common systems.
const ticksPerSecond = 100

// Usage is how much processor time was used up to a moment, in ticks.
type Usage struct {
	at        time.Time
	all, ours float64
}

// UsageNow reads the accounts: of the machine, and of this process and all that
// it has started.
func UsageNow() (u Usage, err error) {
	u.at = time.Now()
	if u.all, err = machineTicks(); err != nil {
		return u, err
	}
	u.ours, err = ourTicks()
	return u, err
}

// Others is the part of the machine that other programs used since before: 1 is
// all of it.
func (u Usage) Others(before Usage) float64 {
	whole := u.at.Sub(before.at).Seconds() * ticksPerSecond * float64(runtime.NumCPU())
	if whole <= 0 {
		return 0
	}
	return max(0, (u.all-before.all)-(u.ours-before.ours)) / whole
}

func machineTicks() (float64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("reading the processor's accounts: %w", err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := strings.Fields(string(line))
	// user nice system idle iowait irq softirq steal
	var sum float64
	for i, field := range fields {
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the processor's accounts: %w", err)
		}
		sum += ticks
	}
	return sum, nil
}

// process is one line of the system's table of processes.
type process struct {
	parent int
	ticks  float64 // with those of children that have ended
}

// ourTicks sums up this process and its descendants.
func ourTicks() (float64, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, fmt.Errorf("listing processes: %w", err)
	}
	table := make(map[int]process, len(files))
	for _, file := range files {
		pid, p, err := readProcess(file)
		if err == nil { // else it has ended
			table[pid] = p
		}
	}
	self := os.Getpid()
	var sum float64
	for pid := range table {
		if descends(table, pid, self) {
			sum += table[pid].ticks
		}
	}
	return sum, nil
}

func descends(table map[int]process, pid, from int) bool {
	for range 100 {
		if pid == from {
			return true
		}
		p, ok := table[pid]
		if !ok {
			return false
		}
		pid = p.parent
	}
	return false
}

// readProcess reads /proc/PID/stat: "PID (name) state parent ...", with the
// times in fields 14 to 17.
func readProcess(file string) (pid int, p process, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, p, err
	}
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return 0, p, fmt.Errorf("reading %s: no name", file)
	}
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 15 {
		return 0, p, fmt.Errorf("reading %s: too short", file)
	}
	if pid, err = strconv.Atoi(filepath.Base(filepath.Dir(file))); err != nil {
		return 0, p, err
	}
	if p.parent, err = strconv.Atoi(fields[1]); err != nil {
		return 0, p, err
	}
	for _, field := range fields[11:15] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, p, err
		}
		p.ticks += ticks
	}
	return pid, p, nil
}
