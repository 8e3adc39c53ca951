package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

func at(t *testing.T, s string) time.Time {
	t.Helper()
	got, err := time.Parse(time.RFC3339, s)
	require.NoError(t, err)
	return got
}

func TestOpenAt_WallClockOfTheZone(t *testing.T) {
	weekdays := []OpeningHours{}
	for day := 1; day <= 5; day++ {
		weekdays = append(weekdays, OpeningHours{day, "09:00", "17:00"})
	}
	night := []OpeningHours{{6, "22:00", "24:00"}, {7, "00:00", "02:30"}}
	for name, c := range map[string]struct {
		zone  string
		hours []OpeningHours
		open  map[string]bool
	}{
		"always": {"", nil, map[string]bool{"2026-12-01T03:00:00Z": true}},
		"start is in, end is out": {"", weekdays, map[string]bool{
			"2026-12-01T08:59:59Z": false, "2026-12-01T09:00:00Z": true, "2026-12-01T16:59:59Z": true, "2026-12-01T17:00:00Z": false,
			"2026-12-05T12:00:00Z": false, // a Saturday
		}},
		"another day there than here": {"Pacific/Auckland", []OpeningHours{{1, "08:00", "10:00"}}, map[string]bool{
			"2026-11-29T19:30:00Z": true, "2026-11-30T19:30:00Z": false, // 13 hours ahead: Sunday here, Monday there
		}},
		"summer time moves with the wall": {"Europe/Berlin", weekdays, map[string]bool{
			"2026-03-27T07:30:00Z": false, "2026-03-27T08:00:00Z": true, // winter: UTC+1
			"2026-03-30T07:00:00Z": true, "2026-03-30T15:00:00Z": false, // summer: UTC+2
		}},
		"an hour that is left out": {"Europe/Berlin", []OpeningHours{{7, "02:00", "03:00"}}, map[string]bool{
			"2026-03-29T00:59:59Z": false, "2026-03-29T01:00:00Z": false, // 01:59:59, then 03:00
		}},
		"an hour that comes twice": {"Europe/Berlin", []OpeningHours{{7, "02:00", "03:00"}}, map[string]bool{
			"2026-10-25T00:30:00Z": true, "2026-10-25T01:30:00Z": true, "2026-10-25T02:00:00Z": false,
		}},
		"past midnight": {"America/Los_Angeles", night, map[string]bool{
			"2026-12-06T05:59:59Z": false, "2026-12-06T06:00:00Z": true, "2026-12-06T07:59:59Z": true, "2026-12-06T08:00:00Z": true,
			"2026-12-06T10:29:59Z": true, "2026-12-06T10:30:00Z": false,
		}},
	} {
		s := InboxSettings{TimeZone: c.zone, OpeningHours: c.hours}
		require.NoError(t, s.check(), name)
		for when, open := range c.open {
			require.Equal(t, open, s.openAt(at(t, when)), "%s: %s", name, when)
		}
	}
}

func TestSay_BestLanguageThenEnglishThenOurs(t *testing.T) {
	s := InboxSettings{Words: map[string]InboxWords{
		"en": {Nobody: "nobody", NobodyJoined: "no one came"}, "de": {Nobody: "niemand"}, "de-CH": {Nobody: "niemer"}, "pt-BR": {Nobody: "ninguém"},
	}}
	for locale, want := range map[string]string{
		`{"locale":"de-AT"}`: "niemand", `{"locale":"de-CH"}`: "niemer", `{"locale":"pt"}`: "ninguém", `{"locale":"en-GB"}`: "nobody",
		`{"locale":"ja"}`: "nobody", `{}`: "nobody", ``: "nobody", `{"locale":"x-nonsense"}`: "nobody",
	} {
		require.Equal(t, want, s.say(nobody, &store.Conversation{Context: []byte(locale)}), locale)
	}
	german := &store.Conversation{Context: []byte(`{"locale":"de"}`)}
	require.Equal(t, "no one came", s.say(nobodyJoined, german), "German has no such sentence")
	require.Equal(t, noAnswer.ours, s.say(noAnswer, german), "nobody wrote one")
	require.Equal(t, nobody.ours, InboxSettings{Words: map[string]InboxWords{"fr": {Nobody: "personne"}}}.say(nobody, german))
}

func TestCheckSettings(t *testing.T) {
	day := func(spans ...string) []OpeningHours {
		var out []OpeningHours
		for i := 0; i < len(spans); i += 2 {
			out = append(out, OpeningHours{1, spans[i], spans[i+1]})
		}
		return out
	}
	for name, s := range map[string]InboxSettings{
		"zero":     {},
		"touching": {OpeningHours: day("09:00", "12:00", "12:00", "24:00")},
		"unsorted": {OpeningHours: day("13:00", "17:00", "09:00", "12:00")},
		"days":     {OpeningHours: []OpeningHours{{1, "09:00", "17:00"}, {2, "09:00", "17:00"}}},
		"times":    {QueueTimeout: 10 * time.Second, AnswerTimeout: 24 * time.Hour},
		"tags":     {Words: map[string]InboxWords{"en": {}, "zh-Hant-TW": {Nobody: "x"}}},
	} {
		require.NoError(t, s.check(), name)
	}
	for field, s := range map[string]InboxSettings{
		"settings.time_zone":        {TimeZone: "Mars/Olympus"},
		"settings.opening_hours[0]": {OpeningHours: day("17:00", "09:00")},
		"settings.opening_hours[1]": {OpeningHours: day("09:00", "12:00", "11:59", "13:00")},
		"settings.opening_hours[2]": {OpeningHours: day("09:00", "12:00", "13:00", "14:00", "08:00", "15:00")},
		"settings.queue_timeout":    {QueueTimeout: 9 * time.Second},
		"settings.answer_timeout":   {AnswerTimeout: 25 * time.Hour},
		"settings.words[e]":         {Words: map[string]InboxWords{"e": {}}},
	} {
		err := s.check()
		require.True(t, problem.Is(err, problem.InvalidRequest), field)
		require.Equal(t, field, problem.As(err).Fields[0].Path)
	}
	require.Error(t, InboxSettings{TimeZone: "Local"}.check())
	require.Error(t, InboxSettings{TimeZone: "../etc/passwd"}.check())
	require.Error(t, InboxSettings{OpeningHours: day("09:00", "09:00")}.check())
	require.Error(t, InboxSettings{QueueTimeout: -time.Second}.check())
	require.Error(t, InboxSettings{Words: map[string]InboxWords{"de": {}, "DE": {}}}.check())
}
