package configuration

import "fmt"

// All handlers of a queue must agree on dry_run. Otherwise, some of its requests
// would wait for others that wait for nobody.

// Declaration is what the first handler of a queue says, and where.
type Declaration struct {
	DryRun bool
	At     string
}

// Declarations are those of all queues, by the identity of the queue.
type Declarations[K comparable] map[K]Declaration

// Agree refuses a handler that differs from an earlier one of its queue.
func (d Declarations[K]) Agree(queue K, prefix string, declared Declaration) error {
	earlier, ok := d[queue]
	if !ok {
		d[queue] = declared
		return nil
	}
	if earlier.DryRun == declared.DryRun {
		return nil
	}
	with, without := earlier, declared
	if !with.DryRun {
		with, without = declared, earlier
	}
	return fmt.Errorf("dry_run: queue %q is in a dry run at %s, and not at %s; it must be the same wherever the queue is used", prefix, with.At, without.At)
}
