package waitingpage

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

const jsonType = "application/json"

// isJSON reports whether a request is from a program that asks for its place. Scripts of pages
// accept more than JSON, unless somebody has written it so.
func (p *Page) isJSON(r *http.Request) bool {
	accept := r.Header["Accept"]
	return p.json && r.Method == http.MethodGet && r.ContentLength <= 0 && len(accept) == 1 && accept[0] == jsonType
}

// jsonPlace is the place of a program; nil is not known.
type jsonPlace struct {
	Place  *int       `json:"place"`
	Wait   *float64   `json:"wait_seconds"`
	Paused bool       `json:"paused"`
	Opens  *time.Time `json:"opens"`
}

// notZero is nil for a zero value.
func notZero[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

// sendPlace answers a program with its place.
func (n *Navigation) sendPlace(w http.ResponseWriter, place Place) error {
	text, err := json.Marshal(jsonPlace{notZero(place.Number), notZero(place.Wait), place.Paused, notZero(place.Opens)})
	if err != nil {
		return err
	}
	w.Header().Set("Retry-After", strconv.Itoa(place.refresh()))
	return answer(w, n.Line.Page.status, jsonType, text)
}
