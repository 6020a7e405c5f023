package console

import (
	"errors"
	"time"
)

// Since is the value of a flag that names a time in the past: how long ago, the time of a day, a day,
// both, or RFC 3339.
type Since struct{ time.Time }

// String returns the time, "" if there is none. It is part of the interface of flags.
func (s *Since) String() string {
	if s.IsZero() {
		return ""
	}
	return s.Format(time.RFC3339)
}

// Type returns the kind of value, for errors.
func (s *Since) Type() string { return "time" }

// UnixMS returns the time in ms of Unix time, 0 if there is none.
func (s *Since) UnixMS() int64 {
	if s.IsZero() {
		return 0
	}
	return s.UnixMilli()
}

// errTime says that a text names no time.
var errTime = errors.New("it is no time")

// Set reads the time from text. A time of the day that is still to come is that of yesterday.
func (s *Since) Set(text string) error {
	now := time.Now()
	if ago, err := time.ParseDuration(text); err == nil {
		if ago < 0 {
			return errTime
		}
		s.Time = now.Add(-ago)
		return nil
	}
	for _, form := range []string{"15:04", time.TimeOnly} {
		if t, err := time.Parse(form, text); err == nil {
			s.Time = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.Local)
			if s.After(now) {
				s.Time = s.AddDate(0, 0, -1)
			}
			return nil
		}
	}
	for _, form := range []string{
		time.RFC3339, time.DateTime, "2006-01-02 15:04", time.DateOnly, "2006-01-02T15:04:05", "2006-01-02T15:04",
	} {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			s.Time = t
			return nil
		}
	}
	return errTime
}
