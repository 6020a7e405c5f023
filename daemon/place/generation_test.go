package place

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/bootclock"
	"holdline/protocol/socket"
)

// newPlace returns a place with its directories and nothing else.
func newPlace(t *testing.T) *Place {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &Place{log: slog.New(slog.NewTextHandler(t.Output(), nil)), stateDir: filepath.Join(dir, "s")}
	if p.dir, err = socket.OpenDir(filepath.Join(dir, "r", "daemon.sock")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.dir.Close() })
	if err := os.Mkdir(p.stateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestGeneration_FileWentBack_StaysAboveBoth checks that each daemon has a higher number than all before it
// of which one of the two files knows, whatever is in the place of the other, and that it starts.
func TestGeneration_FileWentBack_StaysAboveBoth(t *testing.T) {
	t.Parallel()
	now := time.Now().Unix()
	write := func(text string, mode os.FileMode) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	nothing := func(*testing.T, string) {}
	dir := func(t *testing.T, path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		run, state func(t *testing.T, path string)
		want       int64 // the lowest correct number
		clock      bool  // it may be higher
		complains  bool
	}{
		"first":            {nothing, nothing, 1, false, false},
		"runtime only":     {write("1", 0o600), nothing, 2, false, false},
		"wide":             {write(" 41\n", 0o600), nothing, 42, false, false},
		"went back":        {write("15", 0o600), write("0000000000000154\n", 0o600), 155, false, false},
		"state went back":  {write("154", 0o600), write("15", 0o600), 155, false, false},
		"gone":             {nothing, write("154", 0o600), 155, false, false},
		"torn":             {write("", 0o600), write("154", 0o600), 155, false, false},
		"other text":       {write("garbage\x00", 0o600), write("154", 0o600), 155, false, false},
		"negative":         {write("-7", 0o600), write("154", 0o600), 155, false, false},
		"huge":             {write("9223372036854775807", 0o600), write("154", 0o600), 155, false, false},
		"unreadable":       {write("153", 0), write("154", 0o600), 155, false, false},
		"directory":        {dir, write("154", 0o600), 155, false, true},
		"state: directory": {write("154", 0o600), dir, 155, false, true},
		"both torn":        {write("", 0o600), write(" \n", 0o600), now, true, false},
		"both huge":        {write("99999999999999999999", 0o600), write("4503599627370496", 0o600), now, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			tt.run(t, p.File(generationFile))
			tt.state(t, filepath.Join(p.stateDir, generationFile))
			err := p.nextGeneration(t.Context())
			first := p.Generation()
			if late := time.Now().Unix() - now + 1; err != nil || first < tt.want || first != tt.want && !tt.clock ||
				tt.clock && first > tt.want+late {
				t.Errorf("generation %d, %v, want %d", first, err, tt.want)
			}
			if says := p.Complaint(); (says != "") != tt.complains {
				t.Errorf("complains %q, want one: %v", says, tt.complains)
			}
			if err := p.nextGeneration(t.Context()); err != nil || p.Generation() != first+1 {
				t.Errorf("then generation %d, %v, want %d", p.Generation(), err, first+1)
			}
		})
	}
}

// TestRaiseGeneration_NextDaemonKnows checks that a number that was raised above that of a worker stays
// for the next daemon, that it is raised once for all workers, and that no number is above the highest.
func TestRaiseGeneration_NextDaemonKnows(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if err := p.nextGeneration(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ above, want int64 }{{154, 155}, {120, 155}, {155, 156}} {
		if n, err := p.RaiseGeneration(t.Context(), tt.above); err != nil || n != tt.want || p.Generation() != n {
			t.Errorf("RaiseGeneration(%d) = %d, %v, want %d", tt.above, n, err, tt.want)
		}
	}
	if n, err := p.RaiseGeneration(t.Context(), statedir.MaxCount); err == nil {
		t.Errorf("a number above the highest: %d", n)
	}
	if err := p.nextGeneration(t.Context()); err != nil || p.Generation() != 157 {
		t.Errorf("the next daemon has %d, %v, want 157", p.Generation(), err)
	}
}

// TestStoppedSince_TimeInTheFutureIsNotBelieved checks which marks of a stop keep a daemon from starting that
// a proxy wanted before: a damaged one must not do so for ever.
func TestStoppedSince_TimeInTheFutureIsNotBelieved(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	wanted := bootclock.Now()
	if err := MarkStopped(p.Dir()); err != nil {
		t.Fatal(err)
	}
	if !p.stoppedSince(wanted) || p.stoppedSince(bootclock.Now()) {
		t.Error("a stop counts for what was wanted before it, and for nothing later")
	}
	for _, mark := range []string{"", "x", fmt.Sprintf("%s 9%d\n", bootclock.ID(), bootclock.Now()), "other 5\n"} {
		if err := os.WriteFile(p.File(socket.StoppedFile), []byte(mark), 0o600); err != nil {
			t.Fatal(err)
		}
		if p.stoppedSince(wanted) {
			t.Errorf("the mark %q is believed", mark)
		}
		counts := mark == "" || mark == "x" // it cannot be read, and was made in this boot
		if got := socket.ReadStop(p.Dir()); (got != nil) != counts {
			t.Errorf("a proxy believes the mark %q: %v", mark, got)
		}
	}
}
