package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

const (
	// adminPatience is how long a Caddy may take to answer. One that was
	// stopped takes connections and never answers.
	adminPatience = 5 * time.Second

	// maxAdminAnswer bounds the memory that an answer takes, in bytes. A list of
	// 100,000 tickets is shorter.
	maxAdminAnswer = 64 << 20
)

// noAnswerError means that nobody answers at the address of an admin API.
type noAnswerError struct {
	address string
	err     error
}

func (e *noAnswerError) Error() string {
	return fmt.Sprintf("no Caddy answers at %s: %v; --address names another admin API", e.address, e.err)
}

func (e *noAnswerError) Unwrap() error { return e.err }

// answeredError is an error that the admin API answered with.
type answeredError struct {
	status int
	err    error
}

func (e *answeredError) Error() string { return e.err.Error() }

func (e *answeredError) Unwrap() error { return e.err }

func isNotFound(err error) bool {
	answered, ok := errors.AsType[*answeredError](err)
	return ok && answered.status == http.StatusNotFound
}

// ask makes a request to the admin API and reads the answer, which may be nil.
// The error is a [*noAnswerError], or an [*answeredError] if that was the answer.
func (a *adminSource) ask(ctx context.Context, method, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, adminPatience)
	defer cancel()
	type result struct {
		body []byte
		err  error
	}
	done := make(chan result, 1)
	go func() { // Caddy's client has no timeout
		body, err := askAdmin(a.address, method, path)
		done <- result{body, err}
	}()
	select {
	case <-ctx.Done():
		return &noAnswerError{a.address, ctx.Err()}
	case r := <-done:
		if r.err != nil {
			return a.explain(r.err)
		}
		if answer == nil {
			return nil
		}
		if err := json.Unmarshal(r.body, answer); err != nil {
			return fmt.Errorf("reading the answer of %s: %w", a, err)
		}
		return nil
	}
}

func askAdmin(address, method, path string) ([]byte, error) {
	resp, err := caddycmd.AdminAPIRequest(address, method, path, nil, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminAnswer+1))
	if len(body) > maxAdminAnswer {
		return nil, fmt.Errorf("HTTP %d: the answer is longer than %d MiB", resp.StatusCode, maxAdminAnswer>>20)
	}
	return body, err
}

// explain reads an error of Caddy's client: only its text says whether there
// was an answer.
func (a *adminSource) explain(err error) error {
	_, answer, ok := strings.Cut(err.Error(), "HTTP ")
	if !ok {
		return &noAnswerError{a.address, err}
	}
	text, body, _ := strings.Cut(answer, ": ")
	status, convErr := strconv.Atoi(text)
	if convErr != nil {
		return &noAnswerError{a.address, err}
	}
	var says struct {
		Error string `json:"error"`
	}
	if json.Unmarshal([]byte(body), &says) != nil || says.Error == "" {
		says.Error = strings.TrimSpace(body)
	}
	return &answeredError{status, fmt.Errorf("%s says: %s", a, says.Error)}
}
