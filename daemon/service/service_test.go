package service

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestChoose checks which of several handed sockets is used.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  int // index of the socket, -1 for an error
	}{
		{[]string{"LISTEN_FD_3"}, 0},
		{[]string{"other"}, 0}, // the only socket, whatever its name
		{[]string{"other", "holdline"}, 1},
		{[]string{"other", "another"}, -1},
		{[]string{"holdline", "holdline"}, -1},
	} {
		var files []*os.File
		for _, name := range c.names {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close(); w.Close() })
			files = append(files, os.NewFile(r.Fd(), name))
		}
		f, err := choose(files)
		if c.want < 0 && err == nil || c.want >= 0 && (err != nil || f != files[c.want]) {
			t.Errorf("choose(%q) = %v, %v, want number %d", c.names, f, err, c.want)
		}
	}
}

// manager listens for what a daemon tells its service manager.
func manager(t *testing.T) *net.UnixConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); os.RemoveAll(dir) })
	t.Setenv("NOTIFY_SOCKET", path)
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// told returns the next datagram for the service manager.
func told(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatalf("nothing was told: %v", err)
	}
	return string(buf[:n])
}

// TestProve checks that the watchdog gets pings as long as all questions are answered, and
// none if one hangs or fails.
func TestProve(t *testing.T) {
	conn := manager(t)
	var asked atomic.Int32
	var log bytes.Buffer
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		n := NewNotifier(os.Getenv, 1)
		done <- n.Prove(ctx, slog.New(slog.NewTextHandler(&log, nil)), 80*time.Millisecond,
			func(ctx context.Context) (string, error) {
				switch asked.Add(1) {
				case 1, 2:
					<-ctx.Done() // as a part that hangs
					return "", context.Cause(ctx)
				case 3:
					return "", errors.New("refused")
				}
				return "well", nil
			})
	}()
	for i := range 3 {
		if got := told(t, conn); got != "WATCHDOG=1\nSTATUS=well" {
			t.Errorf("told %q", got)
		}
		if n := int(asked.Load()); n < 4+i {
			t.Errorf("ping %d came after %d questions, of which three had no answer", i+1, n)
		}
	}
	boom := errors.New("boom")
	cancel(boom)
	if err := <-done; !errors.Is(err, boom) {
		t.Errorf("Prove = %v", err)
	}
	if n := strings.Count(log.String(), "cannot prove"); n != 3 {
		t.Errorf("%d failures were logged: %s", n, log.String())
	}
}

// TestWatchdog checks how the watchdog's period is read from the environment.
func TestWatchdog(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/nowhere")
	for _, c := range []struct {
		usec, pid string
		want      time.Duration
		bad       bool
	}{
		{"", "", 0, false},
		{"30000000", "", 30 * time.Second, false},
		{"30000000", "1", 0, false}, // the watchdog is for another process
		{"soon", "", 0, true},
	} {
		t.Setenv("WATCHDOG_USEC", c.usec)
		t.Setenv("WATCHDOG_PID", c.pid)
		got, err := notifier("/nowhere").Watchdog()
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("Watchdog with %q of %q = %v, %v", c.usec, c.pid, got, err)
		}
	}
	t.Setenv("WATCHDOG_USEC", "1000000")
	t.Setenv("WATCHDOG_PID", "")
	if got, err := notifier("").Watchdog(); got != 0 || err != nil {
		t.Errorf("without a manager: %v, %v", got, err)
	}
}

// TestJournalHandler checks the form of log lines for the journal, with their priorities.
func TestJournalHandler(t *testing.T) {
	var out bytes.Buffer
	level := new(slog.LevelVar)
	log := slog.New(NewJournalHandler(&out, level)).With("component", "test")
	log.Debug("unseen")
	level.Set(slog.LevelDebug)
	log.Debug("a")
	log.Info("b", "n", 1)
	log.WithGroup("g").Warn("c", "n", 1)
	log.Error("d", "text", "two\nlines")
	want := "<7>msg=a component=test\n<6>msg=b component=test n=1\n<4>msg=c component=test g.n=1\n<3>msg=d component=test text=\"two\\nlines\"\n"
	if got := out.String(); got != want {
		t.Errorf("the journal reads\n%swant\n%s", got, want)
	}
}

// notifier returns the notifier of a daemon with this NOTIFY_SOCKET.
func notifier(socket string) Notifier {
	return NewNotifier(func(name string) string { return map[string]string{"NOTIFY_SOCKET": socket}[name] }, 1)
}

// TestManaged checks that a daemon counts as launchd's if launchd names its job and is its
// parent.
func TestManaged(t *testing.T) {
	for _, c := range []struct {
		socket, job string
		parent      int
		want        string
	}{
		{"", "", 1, Nobody},
		{"/run/notify", "", 17, Systemd},
		{"", "holdline.daemon", 1, Launchd},
		{"", "holdline.daemon", 17, Nobody}, // started by a process that launchd's daemon started
		{"", "0", 1, Nobody},                // started in a terminal
		{"", "com.example.app", 1, Nobody},
	} {
		env := map[string]string{"NOTIFY_SOCKET": c.socket, "XPC_SERVICE_NAME": c.job}
		if got := NewNotifier(func(name string) string { return env[name] }, c.parent).Managed(); got != c.want {
			t.Errorf("socket %q, job %q, parent %d: managed by %q, want %q", c.socket, c.job, c.parent, got, c.want)
		}
	}
}
