package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	cacheFile    = "http-cache.json"
	cacheEntries = 128
	cacheCeiling = 24 * time.Hour // no freshness beyond this, whatever a Company says
)

// documentCache is the agent's private HTTP cache (RFC 9111) of poppy.json, its
// redirects and issuer metadata, together with the waiting times of rate limits.
type documentCache struct {
	Entries map[string]cacheEntry `json:"entries"`
	Holds   map[string]time.Time  `json:"holds"`
}

type cacheEntry struct {
	Status  int         `json:"status"`
	Header  http.Header `json:"header"`
	Body    string      `json:"body"`
	Stored  time.Time   `json:"stored"`
	Expires time.Time   `json:"expires"`
}

// loadCache never fails: a cache that can't be read is an empty one.
func loadCache(dir string, now time.Time) documentCache {
	c := documentCache{}
	if raw, err := os.ReadFile(filepath.Join(dir, cacheFile)); err == nil {
		_ = json.Unmarshal(raw, &c)
	}
	if c.Entries == nil {
		c.Entries = map[string]cacheEntry{}
	}
	if c.Holds == nil {
		c.Holds = map[string]time.Time{}
	}
	for key, until := range c.Holds {
		if !until.After(now) {
			delete(c.Holds, key)
		}
	}
	return c
}

func (a *Agent) saveCache() {
	for len(a.cache.Entries) > cacheEntries {
		oldest, when := "", time.Time{}
		for key, e := range a.cache.Entries {
			if oldest == "" || e.Stored.Before(when) {
				oldest, when = key, e.Stored
			}
		}
		delete(a.cache.Entries, oldest)
	}
	raw, err := json.Marshal(a.cache)
	if err == nil {
		err = writePrivate(filepath.Join(a.dir, cacheFile), raw)
	}
	if err != nil {
		a.report(Step{Section: "3", Title: "Keep the HTTP cache", Detail: err.Error()})
	}
}

// fetch gets a document through the cache, as poppy-0.1/3#7 and 3.2#17 want it.
func (a *Agent) fetch(ctx context.Context, section, title, url string) (incoming, error) {
	now := a.clock.Now()
	entry, have := a.cache.Entries[url]
	if have && now.Before(entry.Expires) && !now.Before(entry.Stored) {
		a.report(Step{
			Section: section, Title: title, OK: true,
			Detail: "from the cache, fresh until " + entry.Expires.Format(time.RFC3339),
			Exchange: &Exchange{
				Request:  RequestView{Method: http.MethodGet, URL: url},
				Response: &ResponseView{Status: entry.Status, Headers: entry.Header, Body: entry.Body, FromCache: true},
			},
		})
		return entry.incoming(), nil
	}
	header := http.Header{"Accept": {jsonType}}
	if have {
		if tag := entry.Header.Get("Etag"); tag != "" {
			header.Set("If-None-Match", tag)
		} else if at := entry.Header.Get("Last-Modified"); at != "" {
			header.Set("If-Modified-Since", at)
		}
	}
	out := outgoing{method: http.MethodGet, url: url, header: header, limit: documentLimit, repeatable: true}
	in, err := a.send(ctx, section, title, out, func(*outgoing) error { return nil })
	if err != nil {
		return incoming{}, err
	}
	if in.status == http.StatusNotModified && have {
		for _, name := range []string{"Cache-Control", "Expires", "Date", "Age", "Etag", "Last-Modified"} {
			if v := in.header.Values(name); len(v) > 0 {
				entry.Header[name] = v
			}
		}
		in = entry.incoming()
	}
	a.store(url, in)
	return in, nil
}

func (e cacheEntry) incoming() incoming {
	return incoming{status: e.Status, header: e.Header.Clone(), body: []byte(e.Body)}
}

func (a *Agent) store(url string, in incoming) {
	now := a.clock.Now()
	life, ok := freshness(in.header, now)
	cacheable := in.status == http.StatusOK || isRedirect(in.status)
	validators := in.header.Get("Etag") != "" || in.header.Get("Last-Modified") != ""
	if !ok || !cacheable || (life <= 0 && !validators) {
		if _, had := a.cache.Entries[url]; had {
			delete(a.cache.Entries, url)
			a.saveCache()
		}
		return
	}
	kept := http.Header{}
	for _, name := range []string{
		"Content-Type", "Cache-Control", "Expires", "Date", "Etag", "Last-Modified", "Location",
	} {
		if v := in.header.Values(name); len(v) > 0 {
			kept[name] = v
		}
	}
	a.cache.Entries[url] = cacheEntry{
		Status: in.status, Header: kept, Body: string(in.body), Stored: now, Expires: now.Add(life),
	}
	a.saveCache()
}

// freshness is how long a response may be used without asking again, by RFC 9111
// sections 4.2.1 and 4.2.3 for a private cache; false where it must not be stored.
func freshness(h http.Header, now time.Time) (time.Duration, bool) {
	if strings.TrimSpace(h.Get("Vary")) == "*" {
		return 0, false
	}
	maxAge, explicit := time.Duration(0), false
	for directive := range strings.SplitSeq(strings.Join(h.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch strings.ToLower(name) {
		case "no-store":
			return 0, false
		case "no-cache":
			return 0, true
		case "max-age":
			secs, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31)
			if err != nil {
				return 0, true // an unreadable age counts as stale
			}
			maxAge, explicit = time.Duration(secs)*time.Second, true
		}
	}
	if !explicit {
		at, err := http.ParseTime(h.Get("Expires"))
		if err != nil {
			return 0, true
		}
		from := now
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			from = date
		}
		maxAge = at.Sub(from)
	}
	if age, err := strconv.ParseUint(h.Get("Age"), 10, 31); err == nil {
		maxAge -= time.Duration(age) * time.Second
	}
	return min(max(maxAge, 0), cacheCeiling), true
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// writePrivate replaces path with content that only the User may read. A reader
// sees the old file or the new one, never a half.
func writePrivate(path string, content []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".tmp-*") // CreateTemp makes it 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	if err == nil {
		err = tmp.Sync()
	}
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		if rm := os.Remove(tmp.Name()); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			err = errors.Join(err, rm)
		}
	}
	return err
}
