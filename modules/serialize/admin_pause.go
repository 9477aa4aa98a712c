package serialize

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

func isAction(segment string) bool { return segment == queueapi.Pause || segment == queueapi.Resume }

// servePause pauses a queue or resumes it. The answer is the queue, or the queues
// where a prefix is named without a path.
func servePause(w http.ResponseWriter, r *http.Request, queue, action string) error {
	query := r.URL.Query()
	for name := range query {
		if name != "for" || action != queueapi.Pause {
			return adminError(http.StatusBadRequest, fmt.Errorf("%s takes no parameter %q; pause takes for, resume none", action, name))
		}
	}
	states, byPath, err := changePause(r.Context(), queue, action, query.Get("for"))
	if err != nil {
		return err
	}
	if byPath {
		return writeJSON(w, states[0])
	}
	return writeJSON(w, states)
}

// changePause pauses queues or resumes them, and returns their states. length is the
// text of a duration, or "" for the default. byPath tells whether the queue was named
// with its path. The error is one of the admin API.
func changePause(ctx context.Context, queue, action, length string) (states []serializer.QueueState, byPath bool, err error) {
	until, err := queueapi.ParsePause(length)
	if err != nil {
		return nil, false, adminError(http.StatusBadRequest, err)
	}
	found, byPath, err := findPausable(ctx, queue)
	if err != nil {
		return nil, false, pauseError(err)
	}
	for _, p := range found {
		if action == queueapi.Pause {
			err = p.pause(ctx, until)
		} else {
			err = p.resume(ctx)
		}
		if err != nil {
			return nil, false, pauseError(err)
		}
		state, err := p.state(ctx)
		if err != nil {
			return nil, false, pauseError(err)
		}
		states = append(states, state)
	}
	return states, byPath, nil
}

func pauseError(err error) error {
	if errors.Is(err, queueapi.ErrNoQueue) {
		return adminError(http.StatusNotFound, fmt.Errorf(
			"this process has %w; %s lists those it has, and a prefix that ends in * stands for all queues that begin so", err, queueapi.Path))
	}
	return adminError(http.StatusInternalServerError, err)
}
