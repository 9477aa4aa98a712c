//go:build unix

package integration_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// browser is a page in a Chromium, with the cookies of its window.
type browser struct {
	*chromium
	t               *testing.T
	window, session string
}

// chromium is a running Chromium, which is spoken to by its DevTools protocol: JSON messages
// over a pipe, each with a zero byte at its end. To start one takes more than most tests do in
// it, so those with the same preferences share it. Each has a window of its own.
type chromium struct {
	cmd     *exec.Cmd
	in      *os.File
	mu      sync.Mutex
	calls   int
	waiting map[int]chan reply
}

type reply struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }
}

// chromiums are those that run, by their preferences in JSON. Their profiles are in dir.
var chromiums struct {
	mu      sync.Mutex
	dir     string
	running map[string]*chromium
}

// openPage opens an empty page in a window that shares no cookies with others.
func openPage(t *testing.T) *browser {
	t.Helper()
	return openPageWith(t, "{}")
}

// openPageWith opens an empty page in a browser with preferences, in JSON.
func openPageWith(t *testing.T, preferences string) *browser {
	t.Helper()
	program := testcaddy.Need(t, "chromium", "apt-get install chromium")
	c, err := chromiumWith(program, preferences)
	if err != nil {
		t.Fatalf("starting chromium: %v", err)
	}
	whole := &browser{t: t, chromium: c}
	var made struct{ BrowserContextID string }
	whole.call("Target.createBrowserContext", nil, &made)
	t.Cleanup(func() {
		whole.call("Target.disposeBrowserContext", map[string]any{"browserContextId": made.BrowserContextID}, nil)
	})
	whole.window = made.BrowserContextID
	return whole.newTab()
}

// chromiumWith returns the Chromium with preferences.
func chromiumWith(program, preferences string) (*chromium, error) {
	chromiums.mu.Lock()
	defer chromiums.mu.Unlock()
	if c := chromiums.running[preferences]; c != nil {
		return c, nil
	}
	profile, err := os.MkdirTemp(chromiums.dir, "chromium")
	theirIn, in, inErr := os.Pipe()
	replies, theirOut, outErr := os.Pipe()
	if err = errors.Join(err, inErr, outErr, os.Mkdir(filepath.Join(profile, "Default"), 0o700),
		os.WriteFile(filepath.Join(profile, "Default", "Preferences"), []byte(preferences), 0o600)); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+profile)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_, _ = theirIn.Close(), theirOut.Close()
	c := &chromium{cmd: cmd, in: in, waiting: make(map[int]chan reply)}
	go c.read(bufio.NewReader(replies))
	chromiums.running[preferences] = c
	return c, nil
}

// closeChromiums also ends what they have started.
func closeChromiums() {
	for _, c := range chromiums.running {
		_, _ = c.send("Browser.close", nil, "")
		_ = c.cmd.Wait()
	}
}

// read passes the replies on. Events are of no interest.
func (c *chromium) read(replies *bufio.Reader) {
	for {
		text, err := replies.ReadBytes(0)
		if err != nil {
			return
		}
		var r reply
		_ = json.Unmarshal(text[:len(text)-1], &r)
		c.mu.Lock()
		if c.waiting[r.ID] != nil {
			c.waiting[r.ID] <- r
			delete(c.waiting, r.ID)
		}
		c.mu.Unlock()
	}
}

// send sends a command, and returns where the reply will be.
func (c *chromium) send(method string, params map[string]any, session string) (<-chan reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	message := map[string]any{"id": c.calls, "method": method, "params": params}
	if params == nil {
		message["params"] = map[string]any{}
	}
	if session != "" {
		message["sessionId"] = session
	}
	text, err := json.Marshal(message)
	if err == nil {
		_, err = c.in.Write(append(text, 0))
	}
	answer := make(chan reply, 1)
	c.waiting[c.calls] = answer
	return answer, err
}

// newTab opens an empty page in the same window.
func (b *browser) newTab() *browser {
	b.t.Helper()
	whole := &browser{t: b.t, chromium: b.chromium}
	var made struct{ TargetID, SessionID string }
	whole.call("Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": b.window}, &made)
	whole.call("Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &made)
	return &browser{t: b.t, chromium: b.chromium, window: b.window, session: made.SessionID}
}

// call sends a command and waits for its result.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	check(b.t, b.try(3*wait.Patience, method, params, result))
}

// try is like call, but returns what goes wrong, also if there is no answer before a limit.
func (b *browser) try(limit time.Duration, method string, params map[string]any, result any) error {
	b.t.Helper()
	answer, err := b.send(method, params, b.session)
	if err != nil {
		b.t.Fatalf("sending %s to chromium: %v", method, err)
	}
	var r reply
	select {
	case r = <-answer:
	case <-time.After(limit):
		return fmt.Errorf("chromium does not answer %s", method)
	}
	if r.Error != nil {
		return fmt.Errorf("%s: %s", method, r.Error.Message)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(r.Result, result)
}

// open goes to an address and waits until the page is there.
func (b *browser) open(url string) {
	b.t.Helper()
	var answer struct{ ErrorText string }
	b.call("Page.navigate", map[string]any{"url": url}, &answer)
	if answer.ErrorText != "" {
		b.t.Fatalf("opening %s: %s", url, answer.ErrorText)
	}
	b.until(fmt.Sprintf("document.readyState === 'complete' && location.href === %q", url))
}

// run evaluates an expression in the page, and fills result if it is not nil.
func (b *browser) run(expression string, result any) {
	b.t.Helper()
	check(b.t, b.evaluate(3*wait.Patience, expression, result))
}

// evaluate is like run, but returns what goes wrong: the page may be on its way to
// another.
func (b *browser) evaluate(limit time.Duration, expression string, result any) error {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	if err := b.try(limit, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer); err != nil {
		return err
	}
	if answer.ExceptionDetails != nil {
		return fmt.Errorf("in the page: %s", answer.ExceptionDetails.Exception.Description)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Result.Value, result); err != nil {
		return fmt.Errorf("in the page, %s is %s: %w", expression, answer.Result.Value, err)
	}
	return nil
}

// until waits until an expression is true.
func (b *browser) until(expression string) {
	b.t.Helper()
	var err error
	if wait.Poll(wait.Patience, func() (is bool) {
		err = b.evaluate(wait.Patience/4, expression, &is)
		return err == nil && is
	}) {
		return
	}
	var text string
	_ = b.evaluate(wait.Patience/4, "location.href + ', ' + document.readyState + ', shows:\\n' + (document.body?.innerText ?? '')", &text)
	b.t.Fatalf("waited in vain for %s: %v; the page %s", expression, err, text)
}

// screen sets the size of the window, and light or dark.
func (b *browser) screen(width, height int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// picture takes a picture of the window.
func (b *browser) picture() []byte {
	b.t.Helper()
	var answer struct{ Data []byte }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &answer)
	return answer.Data
}
