// Package statuspage is the page that shows the queues of a process: what it says of each
// queue, what is wrong, and its presentation.
package statuspage

import (
	"bytes"
	"cmp"
	_ "embed"
	"html/template"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/webpage"
)

// The server renders the whole page for each request. Its script only replaces the old
// page by the new one, so the page is the same with and without JavaScript.
var (
	//go:embed status.html
	statusHTML string
	//go:embed status.css
	statusCSS string
	//go:embed status.js
	statusJS string
)

var statusTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("status").Funcs(template.FuncMap{
		"style":  func() template.CSS { return template.CSS(statusCSS) },
		"script": func() template.JS { return template.JS(statusJS) },
		"age":    queueview.Age,
	}).Parse(statusHTML))
})

// Policy is the page's Content-Security-Policy. It allows just the style
// and script of the page, by their hashes, so nothing that comes with the data
// could ever run. The form is the filter, for those without JavaScript.
var Policy = sync.OnceValue(func() string {
	return "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'" +
		"; style-src " + webpage.SourceHash(statusCSS) + "; script-src " + webpage.SourceHash(statusJS)
})

// Data is what the page shows.
type Data struct {
	Time     time.Time
	Host     string
	PID      int
	Controls bool // the page can evict, pause and resume
	Filter   string
	Total    int // queues there are
	Found    int // queues that the filter finds
	Troubled int // of these: in trouble
	Paused   int // of these: paused

	// The queues of the configuration and those with tickets, the worst first. There may
	// be one for each user, so the lists of queues and of their tickets are cut.
	Queues []*Queue
}

// The most that the page shows.
const (
	maxQueues  = 200
	maxTickets = 25
)

// New is the data of the page for some queues. Queues with the same level, age and number
// inside keep their order.
func New(now time.Time, queues []*Queue, filter string) *Data {
	data := &Data{Time: now.UTC(), PID: os.Getpid(), Filter: filter, Total: len(queues)}
	data.Host, _ = os.Hostname()
	filter = strings.ToLower(filter)
	queues = slices.DeleteFunc(queues, func(q *Queue) bool { return !strings.Contains(strings.ToLower(q.Path+"/"+q.Prefix), filter) })
	for _, q := range queues {
		q.diagnose(now)
		if q.level >= someTrouble {
			data.Troubled++
		}
		if q.PausedUntil != nil {
			data.Paused++
		}
	}
	slices.SortStableFunc(queues, func(a, b *Queue) int {
		return cmp.Or(
			cmp.Compare(b.level, a.level), cmp.Compare(b.OldestWaiting, a.OldestWaiting), cmp.Compare(b.Inside, a.Inside))
	})
	data.Found, data.Queues = len(queues), queues[:min(len(queues), maxQueues)]
	return data
}

// Render is the page.
func Render(data *Data) ([]byte, error) {
	var page bytes.Buffer
	err := statusTemplate().Execute(&page, data)
	return page.Bytes(), err
}
