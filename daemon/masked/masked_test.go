package masked

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"holdline/daemon/redact"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// TestLogsMaskedInParts checks that a secret is hidden wherever the shown part of a log
// begins and ends, also while the log is written.
func TestLogsMaskedInParts(t *testing.T) {
	const secret, other = "the-secret-0123456789", "0123456789"
	for _, before := range []int{
		0, maxPart - len(secret) - 1, maxPart - 10, maxPart - 1, maxPart, maxLog - 10, 2*maxPart - 5,
	} {
		s, path := New([]string{secret, other}), filepath.Join(t.TempDir(), process.FileStderr)
		if part, err := s.ReadLog(path, Place{}); part.Text != "" || part.Next != 0 || err != nil {
			t.Errorf("before the process writes its log is %+v, %v", part, err)
		}
		for _, end := range []string{
			"", "\n", strings.Repeat("x", 2*maxPart) + "\n", strings.Repeat("x", maxLog-10) + "\n",
		} {
			whole := strings.Repeat("-", before) + secret + end
			want := strings.Repeat("-", before) + redact.Hidden + end
			// First from the end of the log; then while it is written, in pieces.
			write := func(n int) {
				t.Helper()
				if err := os.WriteFile(path, []byte(whole[:n]), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(len(whole))
			part, err := s.ReadLog(path, Place{})
			text := part.Text
			isEnd := strings.HasSuffix(want, strings.TrimPrefix(text, redact.Hidden))
			if err != nil || !isEnd || strings.ContainsAny(text, "0123456789") {
				t.Errorf("%d before, %d behind: at once %v, %.60q", before, len(end), err, strings.Trim(text, "-x"))
			}
			unknown, err := Unknown().ReadLog(path, Place{From: 3, Known: true})
			if unknown.Text != "" || unknown.Next != 3 || err != nil {
				t.Errorf("with unknown secrets: %.60q, %d, %v", unknown.Text, unknown.Next, err)
			}
			got, next := "", int64(0)
			for _, n := range []int{before + 5, before + len(secret) - 1, before + len(secret), len(whole)} {
				write(n)
				text, then := follow(t, s, path, next)
				got, next = got+text, then
			}
			if got != want && (end != "" || strings.Trim(got, "-") != "") { // an incomplete line is held back
				t.Errorf("%d before, %d behind: followed %.60q", before, len(end), strings.Trim(got, "-x"))
			}
		}
	}
}

// TestLastWordsMasked checks that part of a secret at the cut end of a line is hidden, and
// that everything is hidden if the secrets are not known.
func TestLastWordsMasked(t *testing.T) {
	f := fault.New(fault.ProcessFailure, fault.Worker, "run:s", "it said abc-secret-1").
		WithCause(fault.Cause{StderrTail: []string{
			"ret-1 is the end of it", "whole abc-secret-1 here", "begins abc-sec",
		}})
	got := New([]string{"abc-secret-1"}).Fault(f)
	const want = "*** is the end of it|whole *** here|begins ***|it said ***"
	if s := strings.Join(append(got.Cause.StderrTail, got.Fault.Detail), "|"); s != want {
		t.Errorf("masked: %s", s)
	}
	if got := Unknown().Fault(f).Cause.StderrTail; len(got) != 1 || got[0] != unknownSecrets {
		t.Errorf("with unknown secrets: %q", got)
	}
	if got := Unknown().Text("abc"); got != unknownSecrets {
		t.Errorf("with unknown secrets a line is quoted as %q", got)
	}
	var none *Secrets
	if got := none.Fault(f); !reflect.DeepEqual(got, f) || none.Text("abc, key=abc") != "abc, key=***" {
		t.Errorf("without secrets the fault is %+v", got)
	}
	if none.Fault(nil) != nil {
		t.Error("no fault became one")
	}
}

// follow returns what a log says from a place on, and where it ends now.
func follow(t *testing.T, s *Secrets, path string, from int64) (got string, next int64) {
	t.Helper()
	for {
		part, err := s.ReadLog(path, Place{From: from, Known: true, Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		got += part.Text
		if part.Next == from {
			return got, part.Next
		}
		from = part.Next
	}
}

// TestLongLineIsFollowed checks that a line which is longer than what one look returns does not
// keep those behind it from being shown, with secrets and without.
func TestLongLineIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	want := strings.Repeat("x", 3*maxPart) + "\nbehind it\n"
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Secrets{nil, New([]string{"y"}), New([]string{"abc-secret-1"})} {
		if got, _ := follow(t, s, path, 0); got != want {
			t.Errorf("secrets %v: %d bytes, want %d", s, len(got), len(want))
		}
	}
}
