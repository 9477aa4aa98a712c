package postgres

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// schema makes the tables.
//
//go:embed schema.sql
var schema string

//go:embed statements.sql
var statementFile string

// statements are those of the file, by name. On a connection that has carried out prepare,
// prepared does the same, and the server need not parse and plan it again.
var statements, prepared, prepare = parseStatements(statementFile)

func parseStatements(file string) (all, prepared map[string]string, prepare string) {
	all, prepared = make(map[string]string), make(map[string]string)
	prepare = "SET enable_seqscan = off; SET jit = off; " // plans are kept while tables grow
	for part := range strings.SplitSeq(file, "\n-- : ") {
		head, text, _ := strings.Cut(part, "\n")
		for _, part := range []string{"durable", "timeline", "history", "identity", "place"} {
			text = strings.ReplaceAll(text, ":"+part, all[part])
		}
		name, parameters, preparable := strings.Cut(head, " (")
		text = onOneLine(text)
		all[name], prepared[name] = text, text
		if preparable {
			prepared[name] = fmt.Sprintf("EXECUTE %q (%s", name, parameters)
			prepare += fmt.Sprintf("PREPARE %q AS %s; ", name, text)
		}
	}
	return all, prepared, prepare
}

// onOneLine is SQL without comments.
func onOneLine(sql string) string {
	return strings.TrimSpace(regexp.MustCompile(`(--.*|\s)+`).ReplaceAllString(sql, " "))
}
