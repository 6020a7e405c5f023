package glance

import (
	"fmt"
	"slices"
	"time"

	"holdline/protocol/control"
)

// Elsewhere returns a line for each server that runs on another machine: where, and how far away
// that is, or why it cannot be reached. Processes of one server on one machine share a line.
func Elsewhere(workers []control.Worker) (lines []string) {
	for _, w := range workers {
		if w.Host == "" || w.State == "stopping" && !w.Attached {
			continue
		}
		line := fmt.Sprintf("%s runs on %s", w.Name, w.Host)
		switch {
		case w.Attached && w.RTTUS > 0:
			line += fmt.Sprintf(", %v away", roundTrip(w.RTTUS))
		case w.Attached:
		case w.Unreachable != "": // package trouble says why
			line += ", which cannot be reached"
		case w.State == "starting":
			line += "; the connection is being made"
		default:
			line += "; the connection was lost"
		}
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// roundTrip rounds a time in microseconds for people.
func roundTrip(us int64) time.Duration {
	d := time.Duration(us) * time.Microsecond
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
