// Package plural words numbers for people: with English nouns, and as durations.
package plural

import (
	"fmt"
	"strings"
	"time"
)

// Count returns a number with its noun, as "1 server", "2 entries" and "3 processes".
func Count(n int, noun string) string { return fmt.Sprintf("%d %s", n, Noun(n, noun)) }

// Noun returns a noun for that number of things, in the plural unless n is 1. It knows the
// regular plural alone, and takes each y at the end for one behind a consonant.
func Noun(n int, noun string) string {
	switch {
	case n == 1:
		return noun
	case strings.HasSuffix(noun, "y"):
		return strings.TrimSuffix(noun, "y") + "ies"
	case strings.HasSuffix(noun, "s"):
		return noun + "es"
	}
	return noun + "s"
}

// Age returns a duration in milliseconds for people: in seconds below a minute, in minutes
// below two days, else in days.
func Age(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd", int(d/(24*time.Hour)))
}

// Seconds returns a duration for people: "12.3 s", or "2m5s" from a minute on.
func Seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
