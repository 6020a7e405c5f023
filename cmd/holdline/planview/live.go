package planview

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"holdline/cmd/holdline/console"
	"holdline/protocol/control"
)

// Live shows the progress of several things that are under way at the same time. On a terminal
// it is one line, with what is under way and for how long. Elsewhere it is a line for each
// thing that has ended. Make it with [NewLive], and close it.
type Live struct {
	events chan event
	ended  chan struct{} // closed when the goroutine that shows has ended
}

// event says that a thing has begun or ended.
type event struct {
	name    string
	of      int    // how many there are
	outcome string // "" if it has begun
}

// livePeriod is how often the elapsed time is shown anew.
const livePeriod = 200 * time.Millisecond

// NewLive returns a display on w, which begins with what is done, such as "Starting servers".
func NewLive(w io.Writer, what string) *Live {
	l := &Live{events: make(chan event), ended: make(chan struct{})}
	go l.run(w, what) // until Close
	return l
}

// Begin says that a thing has begun, and how many there are.
func (l *Live) Begin(name string, of int) { l.events <- event{name: name, of: of} }

// End says that a thing has ended, and how.
func (l *Live) End(name, outcome string) { l.events <- event{name: name, outcome: outcome} }

// Close removes the line, and returns when nothing more is written. It may be called once.
func (l *Live) Close() {
	close(l.events)
	<-l.ended
}

// run shows the events until there are no more.
func (l *Live) run(w io.Writer, what string) {
	defer close(l.ended)
	show, remove := console.ProgressLine(w)
	defer remove()
	tick := time.NewTicker(livePeriod)
	defer tick.Stop()
	began := time.Now()
	var running []string
	count, of := 0, 0
	for {
		select {
		case e, more := <-l.events:
			switch {
			case !more:
				return
			case e.outcome == "":
				running, of = append(running, e.name), e.of
			default:
				count++
				if i := slices.Index(running, e.name); i >= 0 {
					running = slices.Delete(running, i, i+1)
				}
				if show == nil {
					console.Line(w, 4, "%s: %s", e.name, e.outcome)
				}
			}
		case <-tick.C:
		}
		if show != nil && of > 0 {
			show(control.Progress{Message: fmt.Sprintf("%s: %d of %d, %s: %s", what, count, of,
				time.Since(began).Truncate(time.Second), strings.Join(running, ", "))})
		}
	}
}
