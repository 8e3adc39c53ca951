package pages

import (
	"strconv"
	"strings"
	"time"
)

// row is a connected agent with its times in words.
type row struct {
	ConnectedAgent
	Times []labeledTime
}

// labeledTime is a time in words, and for machines where it is one.
type labeledTime struct{ Label, Text, Machine string }

// Rows are the connected agents.
func (v view) Rows() ([]row, error) {
	p, _ := v.Page.(ConnectedAgents)
	rows := make([]row, 0, len(p.Agents))
	for _, a := range p.Agents {
		if strings.TrimSpace(a.Name) == "" {
			a.Name = a.Host
		}
		r := row{ConnectedAgent: a}
		for _, t := range []struct {
			label, none string
			at          time.Time
			clock       bool
		}{
			{"agents.connected", "agents.unused", a.Connected, true},
			{"agents.used", "agents.unused", a.LastUsed, true},
			{"agents.expires", "agents.endless", a.Expires, false},
		} {
			lt, err := v.timeOf(t.label, t.none, t.at, t.clock)
			if err != nil {
				return nil, err
			}
			r.Times = append(r.Times, lt)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (v view) timeOf(label, none string, at time.Time, clock bool) (labeledTime, error) {
	name, err := v.Plain(label)
	if err != nil {
		return labeledTime{}, err
	}
	if at.IsZero() {
		text, err := v.Plain(none)
		return labeledTime{Label: name, Text: text}, err
	}
	at = at.UTC()
	month, err := v.Plain("month." + strconv.Itoa(int(at.Month())))
	if err != nil {
		return labeledTime{}, err
	}
	date, err := v.texts.say("date", map[string]string{
		"day": strconv.Itoa(at.Day()), "month": month, "year": strconv.Itoa(at.Year()),
	})
	if err != nil {
		return labeledTime{}, err
	}
	lt := labeledTime{Label: name, Text: date, Machine: at.Format(time.DateOnly)}
	if clock {
		lt.Machine = at.Format(time.RFC3339)
		lt.Text, err = v.texts.say("date.time", map[string]string{"date": date, "time": at.Format("15:04")})
	}
	return lt, err
}

// Several says whether there is more than one to disconnect.
func (v view) Several() bool {
	p, _ := v.Page.(ConnectedAgents)
	return len(p.Agents) > 1
}

// EndedText says how many were disconnected. One and more is all the plural that our
// languages have.
func (v view) EndedText() ([]part, error) {
	if p, _ := v.Page.(ConnectedAgents); p.Ended == 1 {
		return v.T("agents.ended.one")
	}
	return v.T("agents.ended.other")
}
