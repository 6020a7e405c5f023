// Package steps shows what a consult does while it does it, from the transcript that its
// engine process writes. It needs no daemon: any process that may read the files can use it.
//
// It starts no goroutine. What it returns are words of models and programs; the caller makes
// them harmless for a terminal.
package steps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/plural"
	"holdline/protocol/fault"
	"holdline/protocol/ownfile"
)

// Poll is the time between two looks at a transcript that is followed.
const Poll = 200 * time.Millisecond

// maxRead bounds what one call of [Follower.Next] reads, in bytes, unless a single line is
// longer. A transcript has a bound of its own.
const maxRead = 1 << 20

// Follower reads a transcript from its beginning, and goes on as it grows. It keeps no file
// open between two calls. One goroutine at a time may use it.
type Follower struct {
	path  string
	of    string // engine of the panel's member whose transcript it is; "" for no member
	at    int64  // where the next read begins
	rest  []byte // the beginning of a line whose end is not written yet
	piece string // what was shown of the text that the model is writing
}

// Follow returns a follower of the transcript in a job's directory. The file need not be there
// yet.
func Follow(dir string) *Follower {
	return FollowMember(dir, "")
}

// FollowMember is [Follow] for a member of a panel. Its first step names its engine, without the
// notes on what holds it: those of several members would fill the screen.
func FollowMember(dir, engineName string) *Follower {
	return &Follower{path: filepath.Join(dir, engine.FileTranscript), of: engineName}
}

// Next returns the whole lines that were written since the last call, without their line ends,
// and none if there is nothing new. If much is new it returns a part, so call it until it
// returns none.
func (f *Follower) Next() ([][]byte, error) {
	file, err := ownfile.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) { // not begun, or removed
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what the consult does: %w", err)
	}
	defer file.Close()
	for {
		b, err := io.ReadAll(io.NewSectionReader(file, f.at, maxRead))
		f.at += int64(len(b))
		f.rest = append(f.rest, b...)
		end := bytes.LastIndexByte(f.rest, '\n')
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading what the consult does: %w", err)
		case end >= 0:
			lines := bytes.Split(f.rest[:end], []byte("\n"))
			f.rest = bytes.Clone(f.rest[end+1:])
			return lines, nil
		case len(b) < maxRead:
			return nil, nil
		}
	}
}

// Heard reports whether the lines that were written since the last call say that the program has
// taken a message. It reads on to the end, and parses no other lines.
func (f *Follower) Heard(message string) (heard bool) {
	for {
		lines, err := f.Next()
		if err != nil || len(lines) == 0 {
			return heard
		}
		for _, line := range lines {
			var e engine.Entry
			if bytes.Contains(line, []byte(`"`+engine.KindHeard+`"`)) && json.Unmarshal(line, &e) == nil {
				heard = heard || e.Kind == engine.KindHeard && e.ID == message
			}
		}
	}
}

// maxWords bounds the words of each step that [Last] returns, in bytes.
const maxWords = 200

// Last returns the last n steps of the transcript in a job's directory, each with its time, without
// what the model says.
func Last(dir string, n int) (last []string, err error) {
	f := Follow(dir)
	for {
		lines, err := f.Next()
		if err != nil || len(lines) == 0 {
			return last, err
		}
		for _, line := range lines {
			if s, ok := f.Parse(line); ok && s.Kind != engine.KindText {
				last = append(last, s.At.Format(time.TimeOnly)+" "+fault.Short(s.Words, maxWords))
				last = last[max(0, len(last)-n):]
			}
		}
	}
}

// Step is a part of what a consult does.
type Step struct {
	At   time.Time
	Kind string // of the transcript's line; see [engine.KindStart]
	// Words say what happened, on one line. Of [engine.KindText] they are the next characters
	// of what the model says, and end with a line end where its text does.
	Words string
}

// Parse returns what a line of the transcript means, and false if there is nothing to be shown.
// It wants the lines in their order: a text is written in pieces first and then as a whole, and
// is shown once.
func (f *Follower) Parse(line []byte) (Step, bool) {
	var e engine.Entry
	if json.Unmarshal(line, &e) != nil {
		return Step{}, false
	}
	s := Step{At: time.UnixMilli(e.UnixMS), Kind: e.Kind}
	switch e.Kind {
	case engine.KindPiece:
		f.piece += e.Text
		s.Kind, s.Words = engine.KindText, e.Text
	case engine.KindText:
		rest, begun := strings.CutPrefix(e.Text, f.piece)
		if !begun { // what was shown is another text, which was given up
			rest = "\n" + e.Text
		}
		f.piece, s.Words = "", rest+"\n"
	case engine.KindStart:
		s.Words = "started, level " + e.Level
		if e.EnforcedBy != "" {
			s.Words += ", enforced by " + e.EnforcedBy
		}
		if f.of != "" {
			s.Words = f.of + " " + s.Words
		} else if n := len(e.Notes); n > 0 { // one line: the answer has the notes
			s.Words += ", " + plural.Count(n, "note")
		}
	case engine.KindSession:
		f.piece = "" // a text that was being written is given up
		s.Words = strings.TrimSpace(e.Model + " is thinking")
	case engine.KindTurn:
		f.piece = ""
		s.Words = "its turn is over"
		if e.CostUSD != nil {
			s.Words += fmt.Sprintf(", $%.4f so far", *e.CostUSD)
		}
	case engine.KindSaid:
		s.Words = "a message is passed on to it"
	case engine.KindHeard:
		s.Words = "it has the message"
	case engine.KindStderr:
		s.Words = "the program warns: " + e.Text
	case engine.KindCut:
		s.Words = "more is not recorded: this consult has said too much"
	case engine.KindEnd:
		s.Words = "the consult is over: " + e.Text
	default: // tools, notes and steps of the ladder are words already; so are kinds of a later version
		s.Words = e.Text
	}
	return s, s.Words != ""
}
