package planview

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"holdline/cmd/holdline/console"
	"holdline/protocol/control"
)

// Live shows the progress of several things that are under way at the same time. On a terminal
// it is one line, with what is under way and for how long. Elsewhere it is a line for each
// thing that has ended. Make it with [NewLive], and close it.
type Live struct {
	events chan event
	closed chan struct{}
	ended  chan struct{} // closed when the goroutine that shows has ended
}

// event says that a thing has begun, what it does, or that it has ended.
type event struct {
	name    string
	of      int    // how many there are, if it has begun
	doing   string // "" if it has not said what it does
	outcome string // "" if it has not ended
}

// NewLive returns a display on w, which begins with what is done, such as "Starting servers".
func NewLive(w io.Writer, what string) *Live {
	l := &Live{events: make(chan event), closed: make(chan struct{}), ended: make(chan struct{})}
	go l.run(w, what) // until Close
	return l
}

// Begin says that a thing has begun, and how many there are.
func (l *Live) Begin(name string, of int) { l.send(event{name: name, of: of}) }

// Say says what a thing that has begun does.
func (l *Live) Say(name, doing string) { l.send(event{name: name, doing: doing}) }

// End says that a thing has ended, and how.
func (l *Live) End(name, outcome string) { l.send(event{name: name, outcome: outcome}) }

// send hands an event to the goroutine that shows. After Close it does nothing: the output of a
// program may come later than its end.
func (l *Live) send(e event) {
	select {
	case l.events <- e:
	case <-l.ended:
	}
}

// Close removes the line, and returns when nothing more is written. It may be called once.
func (l *Live) Close() {
	close(l.closed)
	<-l.ended
}

// run shows the events until Close. What has said last what it does comes first, as the line of
// a terminal has no place for all.
func (l *Live) run(w io.Writer, what string) {
	defer close(l.ended)
	show, remove := console.ProgressLine(w)
	defer remove()
	var running []event
	count, of := 0, 0
	for {
		var e event
		select {
		case e = <-l.events:
		case <-l.closed:
			return
		}
		i := slices.IndexFunc(running, func(one event) bool { return one.name == e.name })
		switch {
		case e.outcome != "":
			count++
			if i >= 0 {
				running = slices.Delete(running, i, i+1)
			}
			if show == nil {
				console.Line(w, 4, "%s: %s", e.name, e.outcome)
			}
		case e.of > 0:
			running, of = append(running, e), e.of
		case i >= 0:
			running = slices.Insert(slices.Delete(running, i, i+1), 0, e)
		}
		if show == nil {
			continue
		}
		var names []string
		for _, one := range running {
			if one.doing != "" {
				one.name += " (" + one.doing + ")"
			}
			names = append(names, one.name)
		}
		show(control.Progress{Message: fmt.Sprintf("%s, %d of %d: %s", what, count, of, strings.Join(names, ", "))})
	}
}
