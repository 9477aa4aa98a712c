package serialize

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
)

// statusControl is the request of a control of the status page.
type statusControl struct {
	Action string `json:"action"`
	Queue  string `json:"queue"` // its path, a slash and its prefix
	Token  string `json:"token"`
	For    string `json:"for"` // of a pause: how long; 0 is until it is resumed
}

// statusActions are the actions of the controls. They return the answer, or an error
// of the admin API.
var statusActions = map[string]func(*http.Request, statusControl) (any, error){
	queueapi.Pause: func(r *http.Request, c statusControl) (any, error) {
		states, _, err := changePause(r.Context(), c.Queue, c.Action, c.For)
		return states, err
	},
	queueapi.Resume: func(r *http.Request, c statusControl) (any, error) {
		states, _, err := changePause(r.Context(), c.Queue, c.Action, "")
		return states, err
	},
	"evict": func(r *http.Request, c statusControl) (any, error) { return evictTicket(r.Context(), c.Queue, c.Token) },
}

// maxControlSize limits the request of a control, in bytes.
const maxControlSize = 64 << 10

// serveControl performs an action. The page gets JSON, also for an error.
func (s *Status) serveControl(w http.ResponseWriter, r *http.Request) error {
	control, result, err := control(w, r)
	if err == nil {
		s.logger.Info("status page: "+control.Action, zap.String("queue", control.Queue), zap.String("token", control.Token),
			zap.String("client_ip", clientIPOf(r)), zap.String("user", userOf(r)))
		return writeJSON(w, result)
	}
	status := http.StatusInternalServerError
	if failed, ok := errors.AsType[caddy.APIError](err); ok {
		status, err = failed.HTTPStatus, failed.Err
	}
	text, marshalErr := json.Marshal(map[string]string{"error": err.Error()})
	if marshalErr != nil {
		return caddyhttp.Error(http.StatusInternalServerError, marshalErr)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, err = w.Write(append(text, '\n'))
	return err
}

func control(w http.ResponseWriter, r *http.Request) (c statusControl, result any, err error) {
	if err := checkOrigin(r); err != nil {
		return c, nil, adminError(http.StatusForbidden, err)
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return c, nil, adminError(http.StatusUnsupportedMediaType, errors.New("expected the Content-Type application/json"))
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxControlSize))
	if err != nil {
		return c, nil, adminError(http.StatusBadRequest, fmt.Errorf("reading the request: %w", err))
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, nil, adminError(http.StatusBadRequest, fmt.Errorf("reading the request: %w", err))
	}
	act, ok := statusActions[c.Action]
	if !ok {
		return c, nil, adminError(http.StatusBadRequest, fmt.Errorf("action %q: there is none of this name", c.Action))
	}
	result, err = act(r, c)
	return c, result, err
}

// checkOrigin refuses requests that do not come from the page itself. A reader of the
// page is logged in, so pages of other sites could send requests in their name.
// Browsers state a request's origin. A request without one is refused, too.
func checkOrigin(r *http.Request) error {
	if r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" {
		return errors.New("the request says neither by Origin nor by Sec-Fetch-Site that it comes from the status page; programs use the admin API")
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return fmt.Errorf("the request comes from another origin: Sec-Fetch-Site is %q", site)
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return fmt.Errorf("the request comes from another origin: %w", err)
	}
	return nil
}

// clientIPOf is the client's address as Caddy sees it.
func clientIPOf(r *http.Request) string {
	ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	return ip
}

// userOf is the name of the user who has logged in, or "".
func userOf(r *http.Request) string {
	user, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).GetString("http.auth.user.id")
	return user
}
