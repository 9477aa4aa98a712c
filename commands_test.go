package orderly

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// runBy says which test or step runs a command of the documentation, by its beginning, or
// why nothing does. The tests of Go that the documents name are looked up instead.
var runBy = map[string]string{
	"go run ./cmd/caddy run --config Caddyfile.example": "by hand, with every command that the file tells to type",
	"go build -o caddy ./cmd/caddy":                      "the step cross builds it",
	"go run ./serializer/torture":                        "serializer/torture",
	"bash .ci/run":                                       "itself",
	"bash .ci/release/run":                               "the step release",
	"hugo ":                                              "the step site",
	"goreleaser check":                                   "by hand: GoReleaser takes ten minutes to build",
	"goreleaser release":                                 "by hand: as above",
	"xcaddy build --with github.com/orderly-http/caddy-orderly@v0.0.0=.":          "the step xcaddy",
	"xcaddy build --with github.com/orderly-http/caddy-orderly --with":            "the step release",
	"docker ": "by nobody: there is no Docker here; docs/containers.md says what was checked instead",
	"./caddy run --config Caddyfile.example": "as go run, above",
	"./caddy run":                            "TestQuickStart in integration_test/recipes",
	"./caddy serialize queues":               "TestQuickStart in integration_test/recipes",
	"./caddy ids decode":                     "TestDocumentedIDs in integration_test/recipes",
	"./caddy hash-password":                  "by nobody: it is Caddy's own and asks for a password",
	"curl -sI localhost:8080":                "TestQuickStart in integration_test/recipes",
	"caddy ids new":                          "TestDocumentedIDs in integration_test/recipes",
	"caddy ids decode":                       "TestDocumentedIDs in integration_test/recipes",
}
