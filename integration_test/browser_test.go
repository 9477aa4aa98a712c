package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// browser is a page in a Chromium, which is spoken to by its DevTools protocol:
// JSON messages over a pipe, each with a zero byte at its end.
type browser struct {
	*connection
	t       *testing.T
	session string
}

// connection is the pipe to a Chromium. Its pages share it.
type connection struct {
	in      *os.File
	replies *os.File
	reader  *bufio.Reader
	calls   int
}

// openBrowser opens a page and waits until it is loaded.
func openBrowser(t *testing.T, url string) *browser {
	t.Helper()
	b := openPage(t)
	b.visit(url)
	return b
}

// openPage opens an empty page.
func openPage(t *testing.T) *browser {
	t.Helper()
	return openPageWith(t, "{}")
}

// openPageWith opens an empty page in a browser with preferences, in JSON.
func openPageWith(t *testing.T, preferences string) *browser {
	t.Helper()
	profile := t.TempDir()
	check(t, os.Mkdir(filepath.Join(profile, "Default"), 0o700))
	testcaddy.WriteFile(t, filepath.Join(profile, "Default", "Preferences"), preferences)
	program := testcaddy.Need(t, "chromium", "apt-get install chromium")
	theirIn, in, err := os.Pipe()
	check(t, err)
	replies, theirOut, err := os.Pipe()
	check(t, err)
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+profile)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting chromium: %v", err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	b := &browser{t: t, connection: &connection{in: in, replies: replies, reader: bufio.NewReader(replies)}}
	t.Cleanup(func() {
		b.session = ""
		b.call("Browser.close", nil, nil) // also ends what the browser started
		_ = cmd.Wait()
		_, _ = in.Close(), replies.Close()
	})
	b.session = b.attach(map[string]any{"url": "about:blank"})
	return b
}

// attach makes a page and returns its session.
func (b *browser) attach(page map[string]any) (session string) {
	b.t.Helper()
	var target struct{ TargetID string }
	b.call("Target.createTarget", page, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	return attached.SessionID
}

// call sends a command and waits for its result. Events are of no interest.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	check(b.t, b.try(method, params, result))
}

// try is like call, but returns the browser's error.
func (b *browser) try(method string, params map[string]any, result any) error {
	b.t.Helper()
	b.calls++
	message := map[string]any{"id": b.calls, "method": method, "params": params}
	if params == nil {
		message["params"] = map[string]any{}
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	check(b.t, err)
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Fatalf("sending %s to chromium: %v", method, err)
	}
	_ = b.replies.SetReadDeadline(time.Now().Add(3 * wait.Patience))
	for {
		text, err := b.reader.ReadBytes(0)
		if err != nil {
			b.t.Fatalf("reading the answer to %s from chromium: %v", method, err)
		}
		var reply struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err := json.Unmarshal(text[:len(text)-1], &reply); err != nil {
			b.t.Fatalf("answer of chromium: %v", err)
		}
		if reply.ID != b.calls {
			continue
		}
		if reply.Error != nil {
			return fmt.Errorf("%s: %s", method, reply.Error.Message)
		}
		if result == nil {
			return nil
		}
		if err := json.Unmarshal(reply.Result, result); err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		return nil
	}
}

// visit goes to an address and waits until the page is there.
func (b *browser) visit(url string) {
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
	check(b.t, b.evaluate(expression, result))
}

// evaluate is like run, but returns what goes wrong: the page may be on its way to
// another.
func (b *browser) evaluate(expression string, result any) error {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	if err := b.try("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer); err != nil {
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
	wait.Eventually(b.t, expression, func() error {
		var is bool
		var text string
		if err := b.evaluate(expression, &is); err != nil || is {
			return err
		}
		if err := b.evaluate("document.body?.innerText ?? ''", &text); err != nil {
			return err
		}
		return fmt.Errorf("the page shows:\n%s", text)
	})
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
