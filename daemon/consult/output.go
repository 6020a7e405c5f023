package consult

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
)

// output takes a piece of standard output apart into lines.
func (d *driver) output(ctx context.Context, data []byte) {
	if d.why == engine.Overflow {
		return
	}
	d.total += len(data)
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		line := data[:i]
		if len(d.rest) > 0 {
			d.rest = append(d.rest, line...)
			line = d.rest
		}
		d.line(ctx, line)
		if cap(d.rest) > 1<<20 {
			d.rest = nil
		}
		d.rest = d.rest[:0]
		data = data[i+1:]
	}
	d.rest = append(d.rest, data...)
	if len(d.rest) > maxLine || d.total > maxOutput || d.noise > maxNoise {
		d.why = engine.Overflow
		d.rest = nil
		d.terminate(ctx, d.m.opt.Ladder.Grace)
	}
}

// line handles one line of the program.
func (d *driver) line(ctx context.Context, line []byte) {
	for _, e := range d.run.Line(line) {
		d.note(&e)
		switch e.Kind {
		case engine.Started:
			d.j.mu.Lock()
			d.j.session, d.j.model = e.Session, e.Model
			d.j.mu.Unlock()
			d.j.tell("%s is thinking", cmp.Or(e.Model, d.j.rec.Engine))
		case engine.Text:
			d.show(true)
			d.j.tell("writing")
		case engine.ToolUse, engine.Retry, engine.Fallback:
			d.j.tell("%s", e.Text)
		case engine.Limit:
			d.m.hear(e.Window)
			if e.Text != "" {
				d.j.tell("%s", e.Text)
			}
		case engine.Stuck:
			if d.phase == working {
				d.terminate(ctx, d.m.opt.Ladder.Grace)
			}
		case engine.TurnDone:
			d.turnDone(ctx, e.Answered)
		case engine.Noise:
			d.noise += len(line) + 1
		case engine.Waiting, engine.Piece:
			d.show(false)
		}
	}
}

// note keeps what an event says besides its kind: progress, turn and cost.
func (d *driver) note(e *engine.Event) {
	switch e.Kind {
	case engine.Retry, engine.Limit, engine.Noise, engine.Stuck:
		return // signs of life, but not of progress
	case engine.Started, engine.Text, engine.ToolUse, engine.Fallback, engine.Waiting, engine.Piece, engine.TurnDone:
	}
	d.active = time.Now()
	if e.Turn == 0 && e.CostUSD == nil {
		return
	}
	d.j.mu.Lock()
	defer d.j.mu.Unlock()
	d.j.turn = max(d.j.turn, e.Turn)
	if e.CostUSD != nil {
		d.j.cost = e.CostUSD
	}
}

// show makes what was said so far visible to those who wait: at once where a
// text has ended, at most once a second while it is written.
func (d *driver) show(now bool) {
	if !now && time.Since(d.shown) < time.Second {
		return
	}
	d.shown = time.Now()
	text := d.run.Text()
	d.j.mu.Lock()
	defer d.j.mu.Unlock()
	if len(text) > len(d.j.text) {
		d.j.note = fmt.Sprintf("writing, %d characters so far", len([]rune(text)))
	}
	d.j.text = text
}

// keepStderr keeps the last lines of standard error.
func (d *driver) keepStderr(data []byte) {
	d.errRest = append(d.errRest, data...)
	for {
		i := bytes.IndexByte(d.errRest, '\n')
		if i < 0 {
			break
		}
		d.stderrLine(d.errRest[:i])
		d.errRest = append(d.errRest[:0], d.errRest[i+1:]...)
	}
	if len(d.errRest) > 4*maxStderrLine {
		d.stderrLine(d.errRest)
		d.errRest = d.errRest[:0]
	}
}

func (d *driver) stderrLine(line []byte) {
	text := strings.TrimRight(strings.ToValidUTF8(string(line[:min(len(line), maxStderrLine)]), "\uFFFD"), "\r ")
	if text == "" {
		return
	}
	d.stderr = append(d.stderr, text)
	if len(d.stderr) > maxStderrLines {
		d.stderr = d.stderr[1:]
	}
}
