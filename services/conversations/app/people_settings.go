package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // zones are the same on every machine

	"golang.org/x/text/language"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

const (
	defaultQueue  = 5 * time.Minute
	defaultAnswer = 10 * time.Minute
	minDeskTime   = 10 * time.Second
	maxDeskTime   = 24 * time.Hour
)

// InboxSettings are how a Company's people work. The zero InboxSettings are those of a
// Company that never set any.
type InboxSettings struct {
	TimeZone             string                `json:"time_zone,omitempty"`
	OpeningHours         []OpeningHours        `json:"opening_hours,omitempty"`
	QueueTimeout         time.Duration         `json:"queue_timeout,omitempty"`
	AnswerTimeout        time.Duration         `json:"answer_timeout,omitempty"`
	QueueWithoutPresence bool                  `json:"queue_without_presence,omitempty"`
	MaxPerPerson         int                   `json:"max_per_person,omitempty"`
	Words                map[string]InboxWords `json:"words,omitempty"` // by language tag
}

// OpeningHours are a span of a weekday in the settings' time zone; 1 is Monday. End is exclusive.
type OpeningHours struct {
	Weekday int    `json:"weekday"`
	Start   string `json:"start"`
	End     string `json:"end"`
}

// InboxWords are the Company's sentences; "" where it has none.
type InboxWords struct {
	Nobody       string `json:"nobody,omitempty"`
	NobodyJoined string `json:"nobody_joined,omitempty"`
	NoAnswer     string `json:"no_answer,omitempty"`
}

// sentence is something that the agent is told.
type sentence struct {
	ours string
	of   func(InboxWords) string
}

var (
	nobody = sentence{
		"No person is available at the company right now.", func(w InboxWords) string { return w.Nobody },
	}
	nobodyJoined = sentence{
		"No person at the company could join.", func(w InboxWords) string { return w.NobodyJoined },
	}
	noAnswer = sentence{
		"The person at the company has not answered yet.", func(w InboxWords) string { return w.NoAnswer },
	}
)

// say returns the sentence in the language of the agent's context, as far as the
// Company has it; otherwise its English words, or ours.
func (s InboxSettings) say(what sentence, c *store.Conversation) string {
	var said struct {
		Locale string `json:"locale"`
	}
	_ = json.Unmarshal(c.Context, &said) // a context without one says nothing
	names := make([]string, 0, len(s.Words))
	for name, w := range s.Words {
		if what.of(w) != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	tags := make([]language.Tag, 0, len(names))
	for _, name := range names {
		tags = append(tags, language.Make(name))
	}
	if len(tags) == 0 {
		return what.ours
	}
	matcher := language.NewMatcher(tags)
	for _, wanted := range []string{said.Locale, "en"} {
		if wanted == "" {
			continue
		}
		if _, i, sure := matcher.Match(language.Make(wanted)); sure >= language.High {
			return what.of(s.Words[names[i]])
		}
	}
	return what.ours
}

func (s InboxSettings) times() deskTimes {
	t := deskTimes{queue: s.QueueTimeout, answer: s.AnswerTimeout}
	if t.queue == 0 {
		t.queue = defaultQueue
	}
	if t.answer == 0 {
		t.answer = defaultAnswer
	}
	return t
}

// openAt reports whether people can be asked for. What counts is the clock on the wall
// of the Company's zone: an hour that a zone repeats is open twice, one that it leaves
// out never.
func (s InboxSettings) openAt(now time.Time) bool {
	if len(s.OpeningHours) == 0 {
		return true
	}
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil { // checked when it was set
		zone = time.UTC
	}
	local := now.In(zone)
	weekday, at := (int(local.Weekday())+6)%7+1, local.Format("15:04")
	for _, h := range s.OpeningHours {
		if h.Weekday == weekday && h.Start <= at && at < h.End {
			return true
		}
	}
	return false
}

// check reports what is wrong with settings.
func (s InboxSettings) check() error {
	if s.TimeZone != "" {
		if _, err := time.LoadLocation(s.TimeZone); err != nil || s.TimeZone == "Local" {
			return resource.Invalid("settings.time_zone", "is no IANA time zone")
		}
	}
	if err := checkHours(s.OpeningHours); err != nil {
		return err
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"queue_timeout", s.QueueTimeout}, {"answer_timeout", s.AnswerTimeout}} {
		if d.value != 0 && (d.value < minDeskTime || d.value > maxDeskTime) {
			return resource.Invalid("settings."+d.field, "is neither 0 nor from 10 s to 24 h")
		}
	}
	return checkWords(s.Words)
}

// checkHours refuses spans that are empty or that overlap. "HH:MM" sorts as text.
func checkHours(hours []OpeningHours) error {
	for i, h := range hours {
		field := fmt.Sprintf("settings.opening_hours[%d]", i)
		if h.Start >= h.End {
			return resource.Invalid(field, "ends before it starts; what goes past midnight is two spans")
		}
		for _, o := range hours[:i] {
			if o.Weekday == h.Weekday && h.Start < o.End && o.Start < h.End {
				return resource.Invalid(field, "overlaps another span of the day")
			}
		}
	}
	return nil
}

func checkWords(words map[string]InboxWords) error {
	seen := map[string]bool{}
	for name, w := range words {
		field := "settings.words[" + name + "]"
		tag, err := language.Parse(name)
		if err != nil || tag == language.Und {
			return resource.Invalid(field, "is no language tag (RFC 5646)")
		}
		if low := strings.ToLower(name); seen[low] {
			return resource.Invalid(field, "is there twice, in other letters")
		}
		seen[strings.ToLower(name)] = true
		for _, s := range []sentence{nobody, nobodyJoined, noAnswer} {
			if text := s.of(w); text != "" {
				if _, err := conversation.ParseCompanyMessage("", text, nil); err != nil {
					return resource.Invalid(field, "has a sentence that can't be a message")
				}
			}
		}
	}
	return nil
}

func settingsOf(row store.InboxRow) (InboxSettings, error) {
	var s InboxSettings
	if row.Version == 0 {
		return s, nil
	}
	err := json.Unmarshal(row.Settings, &s)
	return s, err
}

// InboxSettings returns the Company's settings, and the row that says when they last changed.
func (a *App) InboxSettings(ctx context.Context, scope tenancy.Scope) (InboxSettings, store.InboxRow, error) {
	var row store.InboxRow
	err := a.store.Read(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		var err error
		row, err = tx.Inbox(ctx)
		return err
	})
	if err != nil {
		return InboxSettings{}, row, err
	}
	s, err := settingsOf(row)
	return s, row, err
}

// InboxChange is a change of the settings.
type InboxChange struct {
	Apply        func(*InboxSettings)
	ETag         string
	ValidateOnly bool
}

// UpdateInboxSettings changes the settings, for every handoff from now on.
func (a *App) UpdateInboxSettings(ctx context.Context, scope tenancy.Scope, ch InboxChange) (InboxSettings, store.InboxRow, error) {
	s, row, err := a.updateInbox(ctx, scope, ch)
	if errors.Is(err, store.ErrTaken) { // who names an etag is told that it doesn't fit any more
		s, row, err = a.updateInbox(ctx, scope, ch)
	}
	return s, row, err
}

func (a *App) updateInbox(ctx context.Context, scope tenancy.Scope, ch InboxChange) (InboxSettings, store.InboxRow, error) {
	var s InboxSettings
	var row store.InboxRow
	err := a.store.Write(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		var err error
		if row, err = tx.Inbox(ctx); err != nil {
			return err
		}
		if err := resource.CheckETag(ch.ETag, row.Version); err != nil {
			return err
		}
		if s, err = settingsOf(row); err != nil {
			return err
		}
		ch.Apply(&s)
		if err := s.check(); err != nil || ch.ValidateOnly {
			return err
		}
		raw, err := json.Marshal(s)
		if err != nil {
			return err
		}
		row, err = tx.SaveInbox(ctx, row, raw, a.now())
		return err
	})
	return s, row, err
}
