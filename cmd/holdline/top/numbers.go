package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"holdline/cmd/holdline/glance"
	"holdline/daemon/plural"
)

// count returns a number with commas between thousands.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// size returns a number of bytes for people, or a dash for none.
func size(bytes int64) string {
	if bytes <= 0 {
		return "–"
	}
	return glance.Bytes(bytes)
}

// latency returns milliseconds for people.
func latency(ms float64) string {
	switch {
	case ms <= 0:
		return "–"
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

// rate returns calls a second.
func rate(r float64) string {
	switch {
	case r <= 0:
		return "0"
	case r < 100:
		return fmt.Sprintf("%.1f", r)
	}
	return fmt.Sprintf("%.0f", r)
}

// age returns a time for people in two units at most: 4s, 1m12s, 3h05m, 2d4h.
func age(ms int64) string {
	d := (time.Duration(max(ms, 0)) * time.Millisecond).Truncate(time.Second)
	h, m, s := int(d/time.Hour), int(d/time.Minute)%60, int(d/time.Second)%60
	switch {
	case h >= 48:
		return fmt.Sprintf("%dd%dh", h/24, h%24)
	case h > 0:
		return fmt.Sprintf("%dh%02dm", h, m)
	case m > 0:
		return fmt.Sprintf("%dm%02ds", m, s)
	}
	return fmt.Sprintf("%ds", s)
}

// cost returns what a consult has cost, or a dash if its program does not say.
func cost(usd *float64) string {
	if usd == nil {
		return "–"
	}
	return plural.Dollars(*usd)
}

// counted returns a number with its noun, and commas between thousands.
func counted(n int, noun string) string { return count(int64(n)) + " " + plural.Noun(n, noun) }

// short returns a path with ~ for the user's home.
func short(path, home string) string {
	if home != "" && (path == home || strings.HasPrefix(path, home+"/")) {
		return "~" + path[len(home):]
	}
	return path
}
