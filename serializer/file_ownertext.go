package serializer

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Owner is what an owner file says about its process. In a directory, a process has one
// such file for each combination of [Rule] and [Arrival.Group]. Each ticket is a hard
// link to it, so the ticket has the same content.
//
// The file starts with text, one "key: value" per line after the first:
//
//	orderly lock-file owner 1
//	pid: 4711
//	host: web1
//	started: 2026-11-20T08:15:30Z
//	program: /usr/bin/caddy
//	shared: false
//	limit: 1
//	group: "user_{http.auth.user.id}_"
type Owner struct {
	PID     int
	Host    string
	Started time.Time // when the process began to work in this directory
	Program string
	Rule    Rule
	Group   string // empty means none

	// GroupUnknown means that the file says nothing about a group, as in older versions.
	GroupUnknown bool
}

// ownerKind is what the tickets of one owner file have in common.
type ownerKind struct {
	Rule
	group string
}

// kind is what a local ticket's owner file says about it. A group is left out if its name
// is too long for a pause.
func (t *ticket) kind() ownerKind {
	if len(t.group) > maxFileName {
		return ownerKind{Rule: t.Rule}
	}
	return ownerKind{t.Rule, t.group}
}

const ownerMagic = "orderly lock-file owner 1"

// maxOwnerSize exceeds the size of any owner file's text, in bytes.
const maxOwnerSize = 8 << 10

// self describes this process.
func self(k ownerKind, now time.Time) Owner {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	program, err := os.Executable()
	if err != nil {
		program = "unknown"
	}
	return Owner{PID: os.Getpid(), Host: host, Started: now.UTC().Truncate(time.Second), Program: program, Rule: k.Rule, Group: k.group}
}

// String names the process for people.
func (o Owner) String() string { return fmt.Sprintf("pid %d on %s", o.PID, o.Host) }

func (o Owner) text() []byte {
	text := fmt.Appendf(nil, "%s\npid: %d\nhost: %s\nstarted: %s\nprogram: %s\nshared: %t\nlimit: %d\n",
		ownerMagic, o.PID, oneLine(o.Host), o.Started.Format(time.RFC3339), oneLine(o.Program), o.Rule.Shared, o.Rule.Limit)
	if !o.GroupUnknown {
		text = fmt.Appendf(text, "group: %q\n", o.Group)
	}
	return text
}

func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }

// parseOwner reads the text of an owner file.
func parseOwner(text []byte) (Owner, error) {
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	if !lines.Scan() || lines.Text() != ownerMagic {
		return Owner{}, errUnowned
	}
	o := Owner{GroupUnknown: true}
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		if err := o.set(key, value); err != nil {
			return Owner{}, fmt.Errorf("owner file: %s %q: %w", key, value, err)
		}
	}
	return o, nil
}

func (o *Owner) set(key, value string) (err error) {
	switch key {
	case "pid":
		o.PID, err = strconv.Atoi(value)
	case "host":
		o.Host = value
	case "started":
		o.Started, err = time.Parse(time.RFC3339, value)
	case "program":
		o.Program = value
	case "shared":
		o.Rule.Shared, err = strconv.ParseBool(value)
	case "limit":
		o.Rule.Limit, err = strconv.Atoi(value)
	case "group":
		o.Group, err = strconv.Unquote(value)
		o.GroupUnknown = false
	}
	return err // unknown keys may come from later versions
}
