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

// sendPlace answers a program with its place.
func (n *Navigation) sendPlace(w http.ResponseWriter, place Place) error {
	data := jsonPlace{Paused: place.Paused}
	if place.Number > 0 {
		data.Place = &place.Number
	}
	if place.Wait > 0 {
		data.Wait = &place.Wait
	}
	if !place.Opens.IsZero() {
		data.Opens = &place.Opens
	}
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	w.Header().Set("Retry-After", strconv.Itoa(place.refresh()))
	return answer(w, n.Line.Page.status, jsonType, text)
}
