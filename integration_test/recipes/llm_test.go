//go:build unix

package recipes

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// askModel is a program that asks a language model by the library of its maker. It says when
// the answer has begun, then the whole, or the error.
const askModel = `
const [library, file, url] = process.argv.slice(2);
const messages = [{role: 'user', content: 'Does the text "stream": true matter?'}];
let requests = 0;
const options = {apiKey: 'none', baseURL: url, fetch: (...of) => { requests++; return fetch(...of); }};
const ask = {
	openai: async client => client.chat.completions.create({model: 'm', stream: true, messages}),
	'@anthropic-ai/sdk': async client => client.messages.create({model: 'm', max_tokens: 9, stream: true, messages}),
};
(async () => {
	let text = '';
	try {
		const stream = await ask[library](new (require(file))(options));
		console.log('begun');
		for await (const part of stream) text += part.delta?.text ?? part.choices?.[0].delta.content ?? '';
		console.log(JSON.stringify({text, requests}));
	} catch (e) {
		console.log(JSON.stringify({text, requests, name: e.constructor.name, status: e.status ?? 0, error: e.error?.error ?? e.error ?? {message: String(e)}}));
	}
})();
`

type modelAnswer struct {
	Text, Name       string
	Requests, Status int
	Error            struct{ Type, Code, Message string }
}

// model answers as OpenAI's and Anthropic's servers do. The model hold answers when the gate lets it.
func model(gate <-chan bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Model string }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if asked.Model == "hold" {
			select {
			case <-gate:
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		if r.URL.Path == "/v1/messages" {
			_, _ = io.WriteString(w, `event: message_start
data: {"type":"message_start","message":{"id":"1","type":"message","role":"assistant","content":[],"model":"m","usage":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}

event: message_stop
data: {"type":"message_stop"}

`)
			return
		}
		_, _ = io.WriteString(w, `data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hello"}}]}`+"\n\ndata: [DONE]\n\n")
	}
}

// haproxy starts a HAProxy that gives up on a server which says nothing for five seconds.
func haproxy(t *testing.T, server string) (addr string) {
	t.Helper()
	program := testcaddy.Need(t, "haproxy", "apt-get install haproxy")
	addr = testprocess.FreeAddr(t)
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	testcaddy.WriteFile(t, file, fmt.Sprintf(`defaults
	mode http
	timeout connect 1m
	timeout client 1m
	timeout server 5s
	option http-server-close
listen proxy
	bind %s
	server caddy %s
`, addr, server))
	testprocess.Start(t, exec.CommandContext(t.Context(), program, "-db", "-f", file))
	wait.Until(t, "HAProxy listens", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return addr
}

// The clients of OpenAI and of Anthropic wait behind a proxy that would give up. They pass over
// the comments, and take the event of a refusal for an error, which they do not try again.
func TestClientsOfLanguageModels(t *testing.T) {
	for library, path := range map[string]string{"openai": "/v1", "@anthropic-ai/sdk": ""} {
		t.Run(library, func(t *testing.T) {
			module := testcaddy.NeedModule(t, library, "index.js")
			gate := make(chan bool)
			upstream := testcaddy.Serve(t, model(gate))
			k := cook(t, "One GPU behind Ollama or llama.cpp", "keepalive always", "keepalive 1s always", "localhost:11434", upstream)
			url := "http://" + haproxy(t, strings.Trim(k.url, "htp:/")) + path
			script := filepath.Join(t.TempDir(), "ask.js")
			testcaddy.WriteFile(t, script, askModel)
			ask := func(then func()) (a modelAnswer) {
				holder := testcaddy.Send(t, "POST", k.url+"v1/chat/completions", `{"model": "hold"}`)
				k.awaitTickets(t, "gpu_", 1)
				p := testprocess.Start(t, exec.CommandContext(t.Context(), "node", script, library, module, url))
				wait.Until(t, "the answer has begun", func() bool { return strings.HasPrefix(p.Log.String(), "begun\n") })
				then()
				<-p.Ended
				_, text, _ := strings.Cut(p.Log.String(), "\n")
				if err := json.Unmarshal([]byte(text), &a); err != nil {
					t.Fatalf("%s says %q: %v", library, p.Log, err)
				}
				want(t, holder, 200, "hello")
				return a
			}
			a := ask(func() {
				time.Sleep(6 * time.Second) // longer than the proxy waits for a word
				gate <- true
			})
			if a.Text != "hello" || a.Requests != 1 {
				t.Errorf("answered %+v", a)
			}
			a = ask(func() {
				k.evict(t, "gpu_", 1)
				go func() { gate <- true }()
			})
			if a.Error.Code != "evicted" || a.Error.Type != "overloaded_error" || a.Status != 0 || a.Requests != 1 {
				t.Errorf("after a refusal: %+v", a)
			}
		})
	}
}
