package program_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/program"
	"holdline/protocol/fault"
	"holdline/protocol/programtest"
)

// needs are the needs of the program that [install] writes.
var needs = program.Needs{
	Least: program.Version{1, 2, 0}, Help: []string{"--help"}, Update: "update it",
	Options: []string{"--first", "--last"}, Wanted: []string{"--extra"},
}

// install writes a program that answers the questions for its version and its options. As
// long as the file "trouble" is beside it, it runs the shell commands in trouble instead of
// showing its help.
func install(t *testing.T, trouble string) (p *program.Program, dir string) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(dir, "tool")
	script := "#!/bin/sh\necho \"$1\" >>" + dir + "/asked\ncase $1 in\n--version) echo 'tool 1.2.3';;\n" +
		"--help) echo --first; if test -e " + dir + "/trouble; then " + trouble +
		"; fi; echo --last; echo --extra;;\nesac\n"
	programtest.Write(t, path, script)
	if err := os.WriteFile(dir+"/trouble", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + os.Getenv("PATH")}
	return &program.Program{Name: "Tool", Bin: path, Env: env, Operation: "a test", Timeout: time.Minute}, dir
}

// ask returns the look that these tests use.
func ask(p *program.Program) func(ctx context.Context, path string) (string, error) {
	return func(ctx context.Context, path string) (string, error) {
		v, _, err := p.Ask(ctx, path, needs)
		return v.String(), err
	}
}

// TestInterruptedCheckIsNoAnswer checks that a help text that was not read completely does
// not mean that an option is missing, and that the next caller asks again at once.
func TestInterruptedCheckIsNoAnswer(t *testing.T) {
	for _, tt := range []struct {
		name, trouble string
		timeout       time.Duration
		reason        fault.Reason
		says          string
	}{
		{"it fails", "exit 3", time.Minute, fault.BadOutput, "exit code 3"},
		{"it is killed", "kill -9 $$", time.Minute, fault.Killed, "killed"},
		{"its output is held open", "sleep 600 & exit 0", time.Minute, fault.BadOutput, "could not be read to the end"},
		{
			"it prints too much", "head -c 300000 /dev/zero", time.Minute, fault.BadOutput,
			"could not be read to the end",
		},
		{"the time is over", "sleep 600", 300 * time.Millisecond, fault.BadOutput, "did not answer within"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, dir := install(t, tt.trouble)
			looks := program.NewLooks[string]()
			p.Timeout = tt.timeout
			_, err := looks.Look(t.Context(), p, time.Hour, ask(p))
			f, ok := errors.AsType[*fault.Record](err)
			if !ok || f.Fault.Code != fault.SpawnFailure || f.Reason() != tt.reason ||
				!strings.Contains(f.Fault.Detail, tt.says) {
				t.Errorf("the first look: %v, want a spawn_failure with reason %s that says %q", err,
					tt.reason, tt.says)
			}
			if err := os.Remove(dir + "/trouble"); err != nil {
				t.Fatal(err)
			}
			p.Timeout = time.Minute
			if v, err := looks.Look(t.Context(), p, time.Hour, ask(p)); err != nil || v != "1.2.3" {
				t.Errorf("the next look: %q, %v", v, err)
			}
		})
	}
}

// TestCancelledLookIsNotShared cancels the caller that looks while another caller waits for
// it. The other one then looks itself.
func TestCancelledLookIsNotShared(t *testing.T) {
	p, _ := install(t, "true")
	looks := program.NewLooks[string]()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client is gone")
	looking := make(chan struct{})
	var callers sync.WaitGroup
	callers.Go(func() {
		_, err := looks.Look(ctx, p, time.Hour, func(ctx context.Context, _ string) (string, error) {
			close(looking)
			<-ctx.Done()
			return "half of it", nil
		})
		if !errors.Is(err, gone) {
			t.Errorf("the cancelled caller: %v, want %v", err, gone)
		}
	})
	<-looking
	callers.Go(func() {
		if v, err := looks.Look(t.Context(), p, time.Hour, ask(p)); err != nil || v != "1.2.3" {
			t.Errorf("the other caller: %q, %v", v, err)
		}
	})
	cancel(gone)
	callers.Wait()
}

// TestWhatALookHoldsFor checks that a good result is cached, and that a doubtful or failed
// one is not.
func TestWhatALookHoldsFor(t *testing.T) {
	p, _ := install(t, "true")
	looks := program.NewLooks[string]()
	count := 0 // guarded by the turn of looks
	look := func(err error, doubt bool) func(context.Context, string) (string, error) {
		return func(context.Context, string) (string, error) {
			if count++; doubt {
				looks.Doubt()
			}
			return strconv.Itoa(count), err
		}
	}
	failure := errors.New("not logged in")
	for i, step := range []struct {
		err   error
		doubt bool
		want  string
	}{
		{failure, false, "1"},
		{nil, true, "2"},
		{nil, false, "3"},
		{nil, false, "3"},
	} {
		v, err := looks.Look(t.Context(), p, time.Hour, look(step.err, step.doubt))
		if v != step.want || !errors.Is(err, step.err) {
			t.Errorf("step %d: %q, %v, want %q, %v", i, v, err, step.want, step.err)
		}
	}
}

// TestWaitingCallersShareAFailure checks that callers that wait for a look that fails get
// its error, and do not look one after another.
func TestWaitingCallersShareAFailure(t *testing.T) {
	p, _ := install(t, "true")
	synctest.Test(t, func(t *testing.T) {
		looks := program.NewLooks[string]()
		failure := errors.New("not logged in")
		count := 0 // guarded by the turn of looks
		look := func(context.Context, string) (string, error) {
			count++
			time.Sleep(time.Second) // until all others wait
			return "", failure
		}
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() {
				if _, err := looks.Look(t.Context(), p, time.Hour, look); !errors.Is(err, failure) {
					t.Errorf("%v, want %v", err, failure)
				}
			})
		}
		callers.Wait()
		if count != 1 {
			t.Errorf("%d looks, want 1", count)
		}
	})
}

// TestMissingOption checks that a complete help text without an option means that the
// option is missing.
func TestMissingOption(t *testing.T) {
	p, _ := install(t, "exit 0")
	_, _, err := p.Ask(t.Context(), p.Bin, needs)
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.Reason() != fault.Version || !strings.Contains(f.Fault.Detail, "has no option --last") {
		t.Errorf("%v", err)
	}
}
