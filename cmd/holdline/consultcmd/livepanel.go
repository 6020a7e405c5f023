package consultcmd

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdline/cmd/holdline/console"
	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/steps"
	"holdline/protocol/jsonrpc"
)

// view is the transcript of a consult, or of one member of a panel.
type view struct {
	label string // of the member; "" for a consult
	steps *steps.Follower
	text  string // the beginning of a line that the member has not finished
}

// event is a line of a transcript.
type event struct {
	of    *view
	line  []byte
	step  steps.Step
	shown bool
}

// showMembers makes l show the members of a panel, in the place of the panel itself.
func (l *live) showMembers(members []jobdir.Record) {
	l.panel, l.views = true, nil
	for i := range members {
		dir := filepath.Join(filepath.Dir(l.dir), members[i].ID)
		l.views = append(l.views, &view{label: members[i].Label, steps: steps.FollowMember(dir, members[i].Engine)})
	}
}

// read returns what all transcripts have got since the last call, in the order of time, and
// nothing if that is all. If much is new it returns a part.
func (l *live) read() ([]event, error) {
	var all []event
	for _, v := range l.views {
		lines, err := v.steps.Next()
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			step, shown := v.steps.Parse(line)
			all = append(all, event{v, line, step, shown})
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return a.step.At.Compare(b.step.At) })
	return all, nil
}

// labelled returns a line of the transcript, an object, with the label of its member.
func (v *view) labelled(line []byte) []byte {
	if v.label == "" || !bytes.HasPrefix(line, []byte("{")) {
		return line
	}
	return slices.Concat([]byte(`{"label":`), jsonrpc.Encode(v.label), []byte(","), line[1:])
}

// printMember prints a step of a member with its label in front. Of a text it prints whole lines,
// since members speak at the same time.
func (l *live) printMember(v *view, s *steps.Step) {
	if s.Kind == engine.KindText {
		v.text += s.Words
		for {
			line, rest, whole := strings.Cut(v.text, "\n")
			if !whole {
				return
			}
			l.printLine(v, line)
			v.text = rest
		}
	}
	l.flush(v)
	at := s.At.Format(time.TimeOnly)
	console.Line(l.cmd.OutOrStdout(), len(at)+len(v.label)+5, "%v  %v %v", console.Dim.Paint(at),
		console.Bold.Paint("["+v.label+"]"), styles[s.Kind].Paint(s.Words))
}

// printLine prints a line of what a member says.
func (l *live) printLine(v *view, line string) {
	console.Line(l.cmd.OutOrStdout(), len(v.label)+3, "%v %s", console.Bold.Paint("["+v.label+"]"), line)
}

// flush prints what a member has begun to say.
func (l *live) flush(v *view) {
	if v.text != "" {
		l.printLine(v, v.text)
		v.text = ""
	}
}

// flushMembers prints what the members have begun to say.
func (l *live) flushMembers() {
	for _, v := range l.views {
		l.flush(v)
	}
}
