package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// feed is a stream of events from one member, for all watches there. It keeps the token
// with which it was opened. Once etcd refuses that token for a new watch, new watches use
// another feed, and the old feed ends with its last watch.
type feed struct {
	member *member
	token  string
	stream pb.Watch_WatchClient
	ctx    context.Context
	end    context.CancelCauseFunc

	sending sync.Mutex

	mu       sync.Mutex
	watches  map[int64]*watch
	creating []*watch // requested and not confirmed; etcd answers in this order
	retired  bool     // new watches go to another feed
	ended    bool
}

// watch watches a key or a prefix. etcd serves a watch that begins in the past only ten
// times a second, so each watch begins now. So a compaction cannot remove anything that
// is needed, either.
type watch struct {
	feed    *feed
	id      int64
	handle  func([]*mvccpb.Event) // called by the feed, one call after the other
	created chan confirmation     // has room for its one message
	lost    func()                // called once if the watch ends by itself
	stopped bool
}

// confirmation is the revision after which a watch reports every event, or the reason why
// there is no watch.
type confirmation struct {
	rev int64
	err error
}

var (
	errWatchEnded  = errors.New("the watch has ended")
	errFeedRetired = errors.New("the stream was replaced")
)

// watch begins a watch. handle is called for every event after the returned revision.
// lost is called if the watch ends before stop.
func (m *member) watch(ctx context.Context, request *pb.WatchCreateRequest, handle func([]*mvccpb.Event), lost func()) (*watch, int64, error) {
	for retried := false; ; {
		f, err := m.openFeed(ctx)
		if err != nil {
			return nil, 0, err
		}
		w, rev, err := f.watch(ctx, request, handle, lost)
		if errors.Is(err, errFeedRetired) {
			continue
		}
		// etcd 3.4 denies a watch without further explanation if the token is too old.
		if stale := unauthenticated(err) || errors.Is(err, rpctypes.ErrPermissionDenied); !stale || retried || m.username == "" {
			return w, rev, err
		}
		retried = true
		m.retireFeed(f)
		if _, err := m.login(ctx, f.token); err != nil {
			return nil, 0, err
		}
	}
}

// openFeed returns the feed for new watches.
func (m *member) openFeed(ctx context.Context) (*feed, error) {
	select {
	case m.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-m.opening }()
	m.mu.Lock()
	open, token := m.feed, m.token
	m.mu.Unlock()
	if open != nil && open.token == token {
		return open, nil
	}
	f := &feed{member: m, token: token, watches: make(map[int64]*watch)}
	f.ctx, f.end = context.WithCancelCause(context.Background())
	opening := context.AfterFunc(ctx, func() { f.end(context.Cause(ctx)) })
	stream, err := m.watcher.Watch(withToken(f.ctx, token))
	if !opening() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		f.end(err)
		return nil, rpctypes.Error(err)
	}
	f.stream = stream
	m.mu.Lock()
	m.feed = f
	m.feeds[f] = true
	m.mu.Unlock()
	go f.run()
	if open != nil {
		open.retire()
	}
	return f, nil
}

// retireFeed makes new watches use another feed.
func (m *member) retireFeed(f *feed) {
	m.mu.Lock()
	if m.feed == f {
		m.feed = nil
	}
	m.mu.Unlock()
	f.retire()
}

// dropFeeds ends all watches.
func (m *member) dropFeeds(cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.feed = nil
	for f := range m.feeds {
		f.end(cause)
	}
}

// forgetFeed notes that a feed has ended.
func (m *member) forgetFeed(f *feed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.feed == f {
		m.feed = nil
	}
	delete(m.feeds, f)
}

func (f *feed) watch(ctx context.Context, request *pb.WatchCreateRequest, handle func([]*mvccpb.Event), lost func()) (*watch, int64, error) {
	w := &watch{feed: f, handle: handle, lost: lost, created: make(chan confirmation, 1)}
	if err := f.create(w, request); err != nil {
		return nil, 0, err
	}
	select {
	case c := <-w.created:
		return w, c.rev, c.err
	case <-ctx.Done():
		w.stop()
		return nil, 0, context.Cause(ctx)
	}
}

// create sends the request. Confirmations arrive in the order of requests.
func (f *feed) create(w *watch, request *pb.WatchCreateRequest) error {
	f.sending.Lock()
	defer f.sending.Unlock()
	f.mu.Lock()
	if f.ended || f.retired {
		ended := f.ended
		f.mu.Unlock()
		if ended {
			return errWatchEnded
		}
		return errFeedRetired
	}
	f.creating = append(f.creating, w)
	f.mu.Unlock()
	// An error ends the stream, and the feed then notifies the watch.
	_ = f.stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}})
	return nil
}

// run passes events on until the stream ends.
func (f *feed) run() {
	for {
		answer, err := f.stream.Recv()
		switch {
		case err != nil:
			f.member.forgetFeed(f)
			f.finish(rpctypes.Error(err))
			return
		case answer.Created:
			f.confirm(answer)
		case answer.Canceled || answer.CompactRevision > 0:
			f.cancelled(answer.WatchId)
		default:
			f.pass(answer)
		}
	}
}

func (f *feed) confirm(answer *pb.WatchResponse) {
	f.mu.Lock()
	if len(f.creating) == 0 {
		f.mu.Unlock()
		return
	}
	w := f.creating[0]
	f.creating = f.creating[1:]
	defer f.endIfUnused()
	if answer.Canceled {
		w.stopped = true
		f.mu.Unlock()
		w.created <- confirmation{err: watchError(answer.CancelReason)}
		return
	}
	w.id = answer.WatchId
	unwanted := w.stopped
	if !unwanted {
		f.watches[w.id] = w
	}
	f.mu.Unlock()
	if unwanted {
		f.cancel(w.id)
		return
	}
	w.created <- confirmation{rev: answer.Header.Revision}
}

// watchError converts etcd's reason for refusing a watch, which is text, into an error.
func watchError(reason string) error {
	if _, text, ok := strings.Cut(reason, " desc = "); ok {
		reason = text
	}
	return fmt.Errorf("etcd does not watch: %w", rpctypes.Error(status.Error(codes.Unknown, reason)))
}

func (f *feed) pass(answer *pb.WatchResponse) {
	f.mu.Lock()
	w := f.watches[answer.WatchId]
	f.mu.Unlock()
	if w != nil && len(answer.Events) > 0 {
		w.handle(answer.Events)
	}
}

// cancelled notes that etcd has ended a watch.
func (f *feed) cancelled(id int64) {
	f.mu.Lock()
	w := f.watches[id]
	delete(f.watches, id)
	f.mu.Unlock()
	if w != nil {
		w.lost()
	}
	f.endIfUnused()
}

// finish ends all watches.
func (f *feed) finish(err error) {
	if cause := context.Cause(f.ctx); cause != nil {
		err = cause
	}
	f.end(err)
	f.mu.Lock()
	f.ended = true
	watches, creating := f.watches, f.creating
	f.watches, f.creating = nil, nil
	f.mu.Unlock()
	for _, w := range creating {
		w.created <- confirmation{err: err}
	}
	for _, w := range watches {
		w.lost()
	}
}

// cancel ends a watch at etcd.
func (f *feed) cancel(id int64) {
	f.sending.Lock()
	defer f.sending.Unlock()
	_ = f.stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

// stop ends the watch. Events that are on their way may still reach handle.
func (w *watch) stop() {
	f := w.feed
	f.mu.Lock()
	known := f.watches[w.id] == w
	w.stopped = true
	if known {
		delete(f.watches, w.id)
	}
	f.mu.Unlock()
	if known && !f.endIfUnused() {
		go f.cancel(w.id)
	}
}

// retire refuses new watches. The feed ends with its last watch, or at once if it has
// none.
func (f *feed) retire() {
	f.mu.Lock()
	f.retired = true
	f.mu.Unlock()
	f.endIfUnused()
}

// endIfUnused ends a retired feed without watches. It reports whether it did.
func (f *feed) endIfUnused() bool {
	f.mu.Lock()
	unused := f.retired && len(f.watches)+len(f.creating) == 0
	f.mu.Unlock()
	if unused {
		f.end(errWatchEnded)
	}
	return unused
}
