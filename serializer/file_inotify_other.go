//go:build unix && !linux && !aix && !solaris

package serializer

import "time"

// notifier does not exist on this system: nothing reports which files changed, so the
// directory is listed again.
type notifier struct{}

func newNotifier(int, string) *notifier { return nil }

func (*notifier) read(func(change, []byte)) (bool, error) { return true, nil }
func (*notifier) mistrust()                               {}
func (*notifier) wait(time.Duration)                      {}
func (*notifier) interrupt()                              {}
func (*notifier) close()                                  {}
