package steps

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine"
)

// told returns the kinds and words of the steps that a follower has not shown yet.
func told(t *testing.T, f *Follower) (all []string) {
	t.Helper()
	for {
		lines, err := f.Next()
		if err != nil {
			t.Fatal(err)
		}
		if len(lines) == 0 {
			return all
		}
		for _, line := range lines {
			if s, ok := f.Parse(line); ok {
				all = append(all, s.Kind+": "+s.Words)
			}
		}
	}
}

// TestFollow checks that a follower shows each line of a transcript once, as soon as it is
// whole, and a text once although it is written in pieces and as a whole.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	f := Follow(dir)
	if got := told(t, f); got != nil {
		t.Fatalf("without a transcript: %q", got)
	}
	cost := 0.03125
	log, err := engine.CreateTranscript(dir, engine.Entry{
		Level: "read", EnforcedBy: "landlock", Notes: []string{"old"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for _, step := range []struct {
		entry engine.Entry
		want  []string
	}{
		{engine.Entry{Kind: engine.KindSession, Model: "opus"}, []string{
			"start: started, level read, enforced by landlock, 1 note", "session: opus is thinking",
		}},
		{engine.Entry{Kind: engine.KindPiece, Text: "So "}, []string{"text: So "}},
		{engine.Entry{Kind: engine.KindPiece, Text: "far"}, []string{"text: far"}},
		{engine.Entry{Kind: engine.KindText, Text: "So far so good."}, []string{"text:  so good.\n"}},
		{engine.Entry{Kind: engine.KindTool, Text: "Read main.go"}, []string{"tool: Read main.go"}},
		{engine.Entry{Kind: engine.KindPiece, Text: "given up"}, []string{"text: given up"}},
		{engine.Entry{Kind: engine.KindText, Text: "begun again"}, []string{"text: \nbegun again\n"}},
		{engine.Entry{Kind: engine.KindPiece, Text: "interrup"}, []string{"text: interrup"}},
		{engine.Entry{Kind: engine.KindTurn, CostUSD: &cost}, []string{"turn: its turn is over, $0.0312 so far"}},
		{engine.Entry{Kind: engine.KindText, Text: "the answer"}, []string{"text: the answer\n"}},
		{engine.Entry{Kind: "of a later version"}, nil},
		{engine.Entry{Kind: engine.KindEnd, Text: "done"}, []string{"end: the consult is over: done"}},
	} {
		if err := log.Write(step.entry); err != nil {
			t.Fatal(err)
		}
		if got := told(t, f); !slices.Equal(got, step.want) {
			t.Errorf("after %+v: %q, want %q", step.entry, got, step.want)
		}
	}
	if got := told(t, FollowMember(dir, "claude"))[0]; got != "start: claude started, level read, enforced by landlock" {
		t.Errorf("of a member: %q", got)
	}
	last, err := Last(dir, 2)
	if err != nil || len(last) != 2 || !strings.HasSuffix(last[0], " its turn is over, $0.0312 so far") ||
		!strings.HasSuffix(last[1], " the consult is over: done") {
		t.Errorf("the last two: %q, %v", last, err)
	}
	if got, all := told(t, f), told(t, Follow(dir)); got != nil || len(all) != 12 {
		t.Errorf("again %q; from the beginning %d steps: %q", got, len(all), all)
	}
}

// TestFollowTorn checks that the beginning of a line waits for its end, that a line longer than
// one read comes whole, and that what is no JSON is left out.
func TestFollowTorn(t *testing.T) {
	dir := t.TempDir()
	file, err := os.OpenFile(filepath.Join(dir, engine.FileTranscript), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f, long := Follow(dir), strings.Repeat("x", 3*maxRead)
	for _, step := range []struct {
		written string
		want    []string
	}{
		{`{"q":1,"k":"tool","te`, nil},
		{"xt\":\"Read\"}\n{", []string{"tool: Read"}},
		{"}\nnonsense\n", nil},
		{`{"k":"note","text":"` + long, nil},
		{"\"}\n", []string{"note: " + long}},
	} {
		if _, err := file.WriteString(step.written); err != nil {
			t.Fatal(err)
		}
		if got := told(t, f); !slices.Equal(got, step.want) {
			t.Errorf("after %.40q: %.80q, want %.80q", step.written, got, step.want)
		}
	}
}

// TestHeard checks that a message counts as heard by its own line alone, which is found once.
func TestHeard(t *testing.T) {
	dir := t.TempDir()
	log, err := engine.CreateTranscript(dir, engine.Entry{Level: "read"})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	f := Follow(dir)
	for _, step := range []struct {
		entry engine.Entry
		want  bool
	}{
		{engine.Entry{Kind: engine.KindSaid, ID: "m"}, false},
		{engine.Entry{Kind: engine.KindHeard, ID: "n"}, false},
		{engine.Entry{Kind: engine.KindText, ID: "m", Text: `"k":"heard"`}, false},
		{engine.Entry{Kind: engine.KindHeard, ID: "m"}, true},
		{engine.Entry{Kind: engine.KindTool, ID: "m", Text: "heard"}, false},
	} {
		if err := log.Write(step.entry); err != nil {
			t.Fatal(err)
		}
		if got := f.Heard("m"); got != step.want {
			t.Errorf("after %+v: %t", step.entry, got)
		}
	}
	if !Follow(dir).Heard("m") {
		t.Error("from the beginning it is not heard")
	}
}

// TestFollowRefuses checks that nothing but a file of this user's own is read as a transcript: a
// link could lead to any file.
func TestFollowRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, engine.FileTranscript)); err != nil {
		t.Fatal(err)
	}
	if lines, err := Follow(dir).Next(); err == nil {
		t.Errorf("a link is followed: %q", lines)
	}
}
