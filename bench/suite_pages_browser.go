//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
)

// browser asks for one page, with cookies and an address of its own: that is what
// X-Forwarded-For has.
type browser struct {
	client http.Client
	url    string
	header http.Header
}

func newBrowser(url string, transport *http.Transport, i int) *browser {
	return &browser{http.Client{Transport: transport, Jar: &jar{cookies: make(map[string]*http.Cookie)}}, url, http.Header{
		"Accept": {"text/html"}, "X-Forwarded-For": {fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)},
	}}
}

// ask loads the page, or its live part. The caller closes the response.
func (p *browser) ask(ctx context.Context, live bool) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return nil, err
	}
	r.Header = p.header.Clone()
	if live {
		r.Header.Set("Orderly-Waiting", "live")
	}
	return p.client.Do(r)
}

// jar keeps a browser's cookies. The one of the standard library takes more memory.
type jar struct {
	mu      sync.Mutex
	cookies map[string]*http.Cookie
}

// SetCookies implements [http.CookieJar].
func (j *jar) SetCookies(_ *url.URL, cookies []*http.Cookie) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range cookies {
		if c.MaxAge < 0 {
			delete(j.cookies, c.Name)
		} else {
			j.cookies[c.Name] = c
		}
	}
}

// Cookies implements [http.CookieJar].
func (j *jar) Cookies(*url.URL) (cookies []*http.Cookie) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.cookies {
		cookies = append(cookies, c)
	}
	return cookies
}

// Interface guards
var _ http.CookieJar = (*jar)(nil)
