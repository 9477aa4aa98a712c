package serializer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// scriptedSignal reports what the test has set, and records how long each wait
// may take.
type scriptedSignal struct {
	changed []bool // and false, after the time is up
	err     error
	asked   []time.Duration
}

func (s *scriptedSignal) wait(timeout time.Duration) (bool, error) {
	s.asked = append(s.asked, timeout)
	if s.err != nil {
		return false, s.err
	}
	if n := len(s.asked); n <= len(s.changed) && s.changed[n-1] {
		return true, nil
	}
	time.Sleep(timeout)
	return false, nil
}

func (*scriptedSignal) interrupt() {}
func (*scriptedSignal) close()     {}

func (p *poller) goDeaf() {
	p.close()
	p.signal = nil
}

// Even without a signal, the directory is read again: soon, if the signal has never
// worked.
func TestPollingIsTheNetBeneath(t *testing.T) {
	for name, test := range map[string]struct {
		signal  changeSignal
		timeout time.Duration
		looks   []time.Duration // how long each of the waits takes
	}{
		"no signal":            {nil, time.Minute, []time.Duration{pollInterval, pollInterval}},
		"no signal, less time": {nil, time.Millisecond, []time.Duration{time.Millisecond}},
		"deaf":                 {&scriptedSignal{}, time.Minute, []time.Duration{pollInterval, pollInterval, pollInterval}},
		"works":                {&scriptedSignal{changed: []bool{true, true, true}}, time.Minute, []time.Duration{0, 0, 0}},
		"works, nothing new":   {&scriptedSignal{changed: []bool{true}}, time.Minute, []time.Duration{0, signalledInterval, signalledInterval}},
		"works, less time":     {&scriptedSignal{changed: []bool{true}}, time.Millisecond, []time.Duration{0, time.Millisecond}},
		"fails":                {&scriptedSignal{err: errors.New("no")}, time.Minute, []time.Duration{pollInterval, pollInterval}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				polls := poller{signal: test.signal}
				for i, want := range test.looks {
					start := time.Now()
					polls.wait(test.timeout)
					if took := time.Since(start); took != want {
						t.Errorf("wait %d took %v; expected %v", i+1, took, want)
					}
				}
			})
		})
	}
}
