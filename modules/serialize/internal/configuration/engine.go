package configuration

import "fmt"

// engine is the engine of a queue, as the first handler says, and where.
type engine struct{ name, at string }

// agreeLocked refuses a handler whose queue, a directory and a prefix, has another engine
// at an earlier one. Two engines would let two requests in.
func (c *configuration) agreeLocked(m Member, at string) error {
	queue := queueIdentity{m.Directory, m.Prefix}
	earlier, ok := c.engines[queue]
	if !ok {
		c.engines[queue] = engine{m.Engine, at}
		return nil
	}
	if earlier.name == m.Engine {
		return nil
	}
	return fmt.Errorf("engine: queue %q in %s has engine %s at %s, and engine %s at %s; give one of them another prefix",
		m.Prefix, m.Directory, earlier.name, earlier.at, m.Engine, at)
}
