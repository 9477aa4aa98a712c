package postgres

import (
	_ "embed"
	"strings"
)

// schema makes the tables.
//
//go:embed schema.sql
var schema string

//go:embed statements.sql
var statementFile string

// statements are those of the file, by name.
var statements = parseStatements(statementFile)

func parseStatements(file string) map[string]string {
	found := make(map[string]string)
	for part := range strings.SplitSeq(file, "\n-- : ") {
		name, text, _ := strings.Cut(part, "\n")
		for _, part := range []string{"durable", "timeline", "history"} {
			text = strings.ReplaceAll(text, ":"+part, found[part])
		}
		found[name] = onOneLine(text)
	}
	return found
}

// onOneLine is SQL without comments.
func onOneLine(sql string) string {
	var words []string
	for line := range strings.Lines(sql) {
		line, _, _ = strings.Cut(line, "--")
		words = append(words, strings.Fields(line)...)
	}
	return strings.Join(words, " ")
}
