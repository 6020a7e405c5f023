package ttytest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Open returns a pseudo-terminal: tty is the end for programs, screen the end that shows
// what they write. It skips the test if the system has none.
func Open(t *testing.T) (tty, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal here: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	fd := int(screen.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal here: %v", err)
	}
	t.Cleanup(func() { tty.Close() })
	return tty, screen
}

// OnScreen runs show with a terminal, and returns what the terminal gets.
func OnScreen(t *testing.T, show func(tty *os.File)) string {
	t.Helper()
	tty, screen := Open(t)
	const end = "\x00the end"
	shown := make(chan error, 1) // read concurrently, because a terminal buffers little
	go func() {
		show(tty)
		_, err := tty.WriteString(end)
		shown <- err
	}()
	var all []byte
	for b := make([]byte, 1<<14); !bytes.HasSuffix(all, []byte(end)); {
		n, err := screen.Read(b)
		all = append(all, b[:n]...)
		if err != nil {
			t.Fatalf("%v after %q", err, all)
		}
	}
	if err := <-shown; err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSuffix(string(all), end), "\r\n", "\n")
}

// CompareFrame compares what a command shows on a terminal of 80 columns with the file
// testdata/NAME.txt, which UPDATE=1 writes anew. No line may be longer than the terminal, and
// width measures one.
func CompareFrame(t *testing.T, name, got string, width func(string) int) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (UPDATE=1 writes it anew):\n%s\nwant:\n%s", path, got, want)
	}
	for line := range strings.Lines(got) {
		if n := width(strings.TrimSuffix(line, "\n")); n > Columns {
			t.Errorf("%s: a line of %d columns: %s", path, n, line)
		}
	}
}
