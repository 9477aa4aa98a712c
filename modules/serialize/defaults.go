package serialize

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/serializer"
)

const (
	defaultPrefix     = "serializer_"
	defaultTimeout    = 60 * time.Second
	defaultErrorCode  = http.StatusInternalServerError
	defaultBuffer     = 64 << 10
	defaultBufferDisk = 64 << 20
	maxBuffer         = 1 << 30
	maxBufferDisk     = 1 << 40

	defaultResponseBuffer = 256 << 10
	maxResponseBuffer     = 1 << 30

	dropNewest = "drop_newest"
	dropOldest = "drop_oldest"

	onDisconnectFinish = "finish"
	onDisconnectCancel = "cancel"
)

// defaultPath is the directory of lock files if none is configured.
func defaultPath() string { return os.TempDir() }

// normalize applies the defaults and checks the settings.
func (s *Handler) normalize() error {
	var err error
	if s.Path, err = expandPath(s.Path); err != nil {
		return fmt.Errorf("serialize: %w", err)
	}
	s.Prefix = cmp.Or(s.Prefix, defaultPrefix)
	s.Timeout = orDefault(s.Timeout, caddy.Duration(defaultTimeout))
	s.WhenFull = cmp.Or(s.WhenFull, dropNewest)
	s.ErrorCode = cmp.Or(s.ErrorCode, defaultErrorCode)
	s.Concurrency = cmp.Or(s.Concurrency, 1)
	s.OnDisconnect = cmp.Or(s.OnDisconnect, onDisconnectFinish)
	s.Buffer = orDefault(s.Buffer, defaultBuffer)
	s.BufferDisk = orDefault(s.BufferDisk, defaultBufferDisk)
	s.ResponseBuffer = orDefault(s.ResponseBuffer, defaultResponseBuffer)
	s.SkipMethods = normalizeMethods(s.SkipMethods)
	s.SharedMethods = normalizeMethods(s.SharedMethods)
	if s.WaitingPage != nil {
		s.WaitingPage.normalize()
	}
	if err := s.Validate(); err != nil {
		return err
	}
	s.placeholders = strings.Contains(s.Prefix, "{")
	s.queue = serializer.QueueName(s.Prefix)
	s.rule, s.shared = s.engineRules()
	if s.DryRun {
		s.openDoors()
	}
	return nil
}

// orDefault is a setting whose zero value has a meaning of its own.
func orDefault[T any](setting *T, value T) *T {
	if setting == nil {
		return &value
	}
	return setting
}

// normalizeMethods returns the methods in upper case, each once.
func normalizeMethods(methods []string) (normal []string) {
	for _, text := range methods {
		for _, method := range splitMethods(text) {
			if !slices.Contains(normal, method) {
				normal = append(normal, method)
			}
		}
	}
	return normal
}

func splitMethods(text string) []string {
	return strings.FieldsFunc(strings.ToUpper(text), func(c rune) bool { return c == ',' || c == ' ' || c == '\t' })
}
