// Package plural words numbers for people: with English nouns, as durations and as sizes.
package plural

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// Size is a number of bytes. As a text it is a whole number of binary units, as "512MiB".
type Size int64

// units of a [Size], each 1024 times the one before.
var units = []string{"B", "KiB", "MiB", "GiB", "TiB"}

// String returns the size in the largest unit of which it is a whole number.
func (s Size) String() string {
	i := 0
	for ; i < len(units)-1 && s != 0 && s%1024 == 0; i++ {
		s /= 1024
	}
	return fmt.Sprintf("%d%s", int64(s), units[i])
}

// ParseSize returns the size that a text stands for.
func ParseSize(text string) (Size, error) {
	digits := strings.TrimRight(text, "KMGTiB")
	n, err := strconv.ParseUint(digits, 10, 23) // so that no unit makes it overflow
	i := slices.Index(units, text[len(digits):])
	if err != nil || i < 0 {
		return 0, errors.New(`is no size such as "512MiB" or "2GiB"`)
	}
	return Size(n << (10 * i)), nil
}

// Dollars returns an amount in whole cents, as "$1.20". One of less than half a cent, which is not
// nothing, is "<$0.01".
func Dollars(usd float64) string {
	if usd > 0 && usd < 0.005 {
		return "<$0.01"
	}
	return fmt.Sprintf("$%.2f", usd)
}

// Seconds returns a duration for people: "12.3 s", or "2m5s" from a minute on.
func Seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
