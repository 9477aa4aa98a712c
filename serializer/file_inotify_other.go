//go:build unix && !linux && !aix && !solaris

package serializer

import "time"

// notifier is not there on this system: nothing tells what changed, so the directory is
// listed again.
type notifier struct{}

func newNotifier(int, string) *notifier { return nil }

func (*notifier) read(func(change, []byte)) (bool, error) { return true, nil }
func (*notifier) mistrust()                               {}
func (*notifier) wait(time.Duration)                      {}
func (*notifier) interrupt()                              {}
func (*notifier) close()                                  {}
