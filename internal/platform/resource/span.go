package resource

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// recent is what a list by time shows where nothing else is asked for.
const recent = 24 * time.Hour

// Span is a range of time: at or after From, and before To. A zero To is no bound.
type Span struct{ From, To time.Time }

// ParseSpan reads the start_time and end_time of a list: the last 24 h where neither is given.
func ParseSpan(now time.Time, start, end *timestamppb.Timestamp) (Span, error) {
	var s Span
	for _, one := range []struct {
		field string
		raw   *timestamppb.Timestamp
		to    *time.Time
	}{{"start_time", start, &s.From}, {"end_time", end, &s.To}} {
		if one.raw == nil {
			continue
		}
		if one.raw.CheckValid() != nil {
			return Span{}, Invalid(one.field, "is no time")
		}
		*one.to = one.raw.AsTime()
	}
	if start == nil && end == nil {
		s.From = now.Add(-recent)
	}
	if !s.To.IsZero() && s.To.Before(s.From) {
		return Span{}, Invalid("end_time", "is before start_time")
	}
	return s, nil
}

// Place is where a page of a list begins that shows the newest first: after this one.
// Its zero value is the beginning.
type Place struct {
	CreatedAt time.Time
	ID        string
}

// Token returns the page token that goes on after p.
func (p Place) Token(now time.Time, bound ...string) string {
	return Token(now, []string{strconv.FormatInt(p.CreatedAt.UnixMicro(), 10), p.ID}, bound...)
}

// ParsePlace reads what Token wrote.
func ParsePlace(now time.Time, raw string, bound ...string) (Place, error) {
	key, err := After(now, raw, 2, bound...)
	if err != nil || key == nil {
		return Place{}, err
	}
	micros, err := strconv.ParseInt(key[0], 10, 64)
	if err != nil || key[1] == "" {
		return Place{}, Invalid("page_token", "not a page token of this list")
	}
	return Place{time.UnixMicro(micros).UTC(), key[1]}, nil
}
