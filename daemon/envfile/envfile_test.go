package envfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holdline/daemon/config"
)

// TestRead checks the syntax of a file of variables, and which permissions it may
// have.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Read(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	write("# comment\n\n A=1 \nexport B=\"two words\"\r\nC='it''s'\nD=\"\nE=x=y\nA=2", 0o600)
	got, err := Read(path)
	want := []string{"A=1", "B=two words", "C=it''s", `D="`, "E=x=y", "A=2"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Read = %q, %v\nwant %q", got, err, want)
	}
	for _, bad := range []string{"A=1\nB\n", "A=1\n=x\n", "A=1\nA B=x\n", "A=1\nB=\x00\n"} {
		write(bad, 0o600)
		if _, err := Read(path); err == nil || err.Error() != path+":2: wants NAME=VALUE" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	write("A="+strings.Repeat("x", config.MaxFile), 0o600)
	if _, err := Read(path); err == nil {
		t.Error("a huge file was taken")
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o666} {
		write("A=1", mode)
		if _, err := Read(path); !errors.Is(err, config.ErrUnsafe) {
			t.Errorf("mode %o: %v, want ErrUnsafe", mode, err)
		}
	}
	write("A=1", 0o400)
	if _, err := Read(path); err != nil {
		t.Errorf("mode 400: %v", err)
	}
	fifo := path + ".fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(fifo); !errors.Is(err, config.ErrUnsafe) {
		t.Errorf("a pipe: %v, want ErrUnsafe", err)
	}
}
