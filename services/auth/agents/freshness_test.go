package agents

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLifetime(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for name, c := range map[string]struct {
		header []string
		want   time.Duration
	}{
		"nothing":               {nil, defaultLifetime},
		"max-age":               {[]string{"Cache-Control", "public, Max-Age=600"}, 10 * time.Minute},
		"quoted":                {[]string{"Cache-Control", `max-age="600"`}, 10 * time.Minute},
		"less Age":              {[]string{"Cache-Control", "max-age=600", "Age", "60"}, 9 * time.Minute},
		"bad Age":               {[]string{"Cache-Control", "max-age=600", "Age", "-60"}, 10 * time.Minute},
		"older than max-age":    {[]string{"Cache-Control", "max-age=600", "Age", "6000"}, minLifetime},
		"at least a minute":     {[]string{"Cache-Control", "max-age=1"}, minLifetime},
		"at most a day":         {[]string{"Cache-Control", "max-age=99999999999999999999999"}, maxLifetime},
		"no-store":              {[]string{"Cache-Control", "max-age=600, no-store"}, minLifetime},
		"no-cache":              {[]string{"Cache-Control", "max-age=600", "Cache-Control", "no-cache"}, minLifetime},
		"s-maxage first":        {[]string{"Cache-Control", "max-age=600, s-maxage=1200"}, 20 * time.Minute},
		"shortest of several":   {[]string{"Cache-Control", "max-age=600", "Cache-Control", "max-age=300"}, 5 * time.Minute},
		"malformed max-age":     {[]string{"Cache-Control", "max-age=ten"}, minLifetime},
		"negative max-age":      {[]string{"Cache-Control", "max-age=-1"}, minLifetime},
		"max-age over Expires":  {[]string{"Cache-Control", "max-age=600", "Expires", at(time.Hour)}, 10 * time.Minute},
		"Expires":               {[]string{"Expires", at(time.Hour)}, time.Hour},
		"Expires by its Date":   {[]string{"Expires", at(25 * time.Hour), "Date", at(24 * time.Hour)}, time.Hour},
		"Expires 0":             {[]string{"Expires", "0"}, minLifetime},
		"Expires past":          {[]string{"Expires", at(-time.Hour)}, minLifetime},
		"other directives only": {[]string{"Cache-Control", "public, immutable"}, defaultLifetime},
	} {
		h := make(http.Header)
		for i := 0; i+1 < len(c.header); i += 2 {
			h.Add(c.header[i], c.header[i+1])
		}
		require.Equal(t, c.want, lifetime(h, now), name)
	}
}

func FuzzLifetime(f *testing.F) {
	f.Add("max-age=600, no-store", "0", "12", "Mon, 01 Jun 2026 12:00:00 GMT")
	f.Add(`s-maxage="1",,=`, "Mon, 01 Jun 2026 12:00:00 GMT", "99999999999999999999", "x")
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, control, expires, age, date string) {
		h := http.Header{"Cache-Control": {control}, "Expires": {expires}, "Age": {age}, "Date": {date}}
		got := lifetime(h, now)
		require.GreaterOrEqual(t, got, minLifetime)
		require.LessOrEqual(t, got, maxLifetime)
	})
}
