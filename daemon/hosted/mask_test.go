package hosted

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/supervisor"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// TestLogsMaskedInParts: a secret is hidden wherever a part of a log begins and
// ends, also while it is being written.
func TestLogsMaskedInParts(t *testing.T) {
	const secret, other = "the-secret-0123456789", "0123456789"
	for _, before := range []int{0, maxPart - len(secret) - 1, maxPart - 10, maxPart - 1, maxPart, maxLog - 10, 2*maxPart - 5} {
		u := &upstream{m: New(Options{Log: slog.New(slog.DiscardHandler)}), dir: t.TempDir(), inst: &instance{}, w: new(supervisor.Worker), secrets: []string{secret, other}}
		path := filepath.Join(u.dir, process.FileStderr)
		for _, end := range []string{"", "\n", strings.Repeat("x", 2*maxPart) + "\n", strings.Repeat("x", maxLog-10) + "\n"} {
			whole := strings.Repeat("-", before) + secret + end
			want := strings.Repeat("-", before) + config.Hidden + end
			// From its end; then as it is written, in pieces.
			write := func(n int) {
				t.Helper()
				if err := os.WriteFile(path, []byte(whole[:n]), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(len(whole))
			l, err := u.readLog(0, false, false)
			if err != nil || !strings.HasSuffix(want, strings.TrimPrefix(l.Text, config.Hidden)) || strings.ContainsAny(l.Text, "0123456789") {
				t.Errorf("%d before, %d behind: at once %v, %.60q", before, len(end), err, strings.Trim(l.Text, "-x"))
			}
			got, next := "", int64(0)
			for _, n := range []int{before + 5, before + len(secret) - 1, before + len(secret), len(whole)} {
				write(n)
				for {
					l, err := u.readLog(next, true, true)
					if err != nil {
						t.Fatal(err)
					}
					got += l.Text
					if l.Next == next {
						break
					}
					next = l.Next
				}
			}
			if got != want && (end != "" || strings.Trim(got, "-") != "") { // a line that is not whole waits
				t.Errorf("%d before, %d behind: followed %.60q", before, len(end), strings.Trim(got, "-x"))
			}
		}
	}
}

// TestLastWordsMasked: a part of a secret at the end of a line that was cut is
// hidden, and everything if it is not known what is secret.
func TestLastWordsMasked(t *testing.T) {
	f := fault.New(fault.ProcessFailure, fault.Worker, "run:s", "it said abc-secret-1").
		WithCause(fault.Cause{StderrTail: []string{"ret-1 is the end of it", "whole abc-secret-1 here", "begins abc-sec"}})
	u := &upstream{secrets: []string{"abc-secret-1"}}
	got := u.maskedLocked(f)
	if s := strings.Join(append(got.Cause.StderrTail, got.Fault.Detail), "|"); s != "*** is the end of it|whole *** here|begins ***|it said ***" {
		t.Errorf("masked: %s", s)
	}
	u = &upstream{withheld: true}
	if got := u.maskedLocked(f).Cause.StderrTail; len(got) != 1 || got[0] != unknownSecrets {
		t.Errorf("withheld: %q", got)
	}
}
