package commands

import (
	"context"
	"fmt"
	"slices"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// directorySource is a directory of lock files.
type directorySource string

func (d directorySource) String() string { return string(d) }

func (d directorySource) queues(context.Context) ([]serializer.QueueState, error) {
	queues, err := serializer.Inspect(string(d))
	return queues, explainStorage(err)
}

func (d directorySource) evict(ctx context.Context, prefix string, token uint64, inside bool) (serializer.Evicted, error) {
	evicted, err := serializer.EvictFrom(ctx, string(d), d.queueName(ctx, prefix), token, inside)
	return evicted, explainStorage(err)
}

// queueName is the name of the queue with a prefix, which is one from a list or from
// a configuration.
func (d directorySource) queueName(ctx context.Context, prefix string) string {
	queues, _ := d.queues(ctx) // the caller meets the error again
	if slices.ContainsFunc(queues, func(q serializer.QueueState) bool { return q.Prefix == prefix }) {
		return prefix
	}
	return serializer.QueueName(prefix)
}

// pause needs no process that works in the directory, so it cannot know whether the
// prefix is right.
func (d directorySource) pause(ctx context.Context, prefix, action, length string) ([]serializer.QueueState, error) {
	name := queueapi.ExpandShorthands(prefix)
	if !queueapi.Placeholder.MatchString(name) {
		name = d.queueName(ctx, prefix)
	}
	until, err := queueapi.ParsePause(length)
	if err != nil {
		return nil, err
	}
	if action == queueapi.Pause {
		err = serializer.PauseQueue(string(d), name, until)
	} else {
		err = serializer.ResumeQueue(string(d), name)
	}
	if err != nil {
		return nil, explainStorage(err)
	}
	queues, err := d.queues(ctx)
	if err != nil {
		return nil, err
	}
	return []serializer.QueueState{stateAfter(queues, d, name, action)}, nil
}

// stateAfter is the state of the queue that was paused or resumed. In a directory that
// everybody may write to, other users have queues of the same name, which the action did
// not change.
func stateAfter(queues []serializer.QueueState, d directorySource, name, action string) serializer.QueueState {
	state := serializer.QueueState{Path: string(d), Prefix: name}
	for _, q := range slices.Backward(queues) {
		if q.Prefix != name {
			continue
		}
		state = q
		if (q.PausedUntil != nil) == (action == queueapi.Pause) {
			break
		}
	}
	return state
}

// defaultSource is the default directory, which nobody has named.
type defaultSource struct {
	directorySource
	late bool // a server took the connection, but did not answer in time
}

// pause refuses a queue that is not there: it is most probably elsewhere, and a pause
// would hold nobody back. It is no error to resume one that nobody has paused.
func (d defaultSource) pause(ctx context.Context, prefix, action, length string) ([]serializer.QueueState, error) {
	queues, err := d.queues(ctx)
	if err != nil {
		return nil, err
	}
	long := queueapi.ExpandShorthands(prefix)
	isThere := func(q serializer.QueueState) bool {
		return slices.Contains([]string{prefix, long, serializer.QueueName(prefix)}, q.Prefix) || fitsPrefix(q, long)
	}
	switch there := slices.ContainsFunc(queues, isThere); {
	case !there && d.late:
		return nil, fmt.Errorf("the server has not answered in time, so its queue may still be as it was, and there is no queue with the prefix %s in %s; "+
			"try again, or name the directory with --path", command.Printable(prefix), d)
	case !there && action == queueapi.Resume:
		return nil, nil
	case !there:
		return nil, fmt.Errorf("%w with the prefix %s in %s, and no Caddy answers; name the directory with --path, or the admin API with --address",
			queueapi.ErrNoQueue, command.Printable(prefix), d)
	}
	return d.directorySource.pause(ctx, prefix, action, length)
}
