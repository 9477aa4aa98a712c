// Package webpage has what the pages of the handlers have in common.
package webpage

import (
	"crypto/sha256"
	"encoding/base64"
)

// SourceHash is the source expression of a policy for a text.
func SourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
