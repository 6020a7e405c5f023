package configfile

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"holdline/daemon/config"
)

// write writes a configuration file with this number of calls in flight, by which the tests
// tell two files apart. 0 writes an invalid file.
func write(t *testing.T, path string, inFlight int) {
	t.Helper()
	text := fmt.Sprintf(`{"limits": {"in_flight": %d}}`, inFlight)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// opened opens the file of dir, as a daemon does that owns the state directory.
func opened(t *testing.T, dir string) (*File, error) {
	t.Helper()
	return openFile(t, dir, filepath.Join(dir, "config.json"))
}

// openFile opens the file at path, as a daemon does that owns the state directory.
func openFile(t *testing.T, state, path string) (*File, error) {
	t.Helper()
	f, err := Open(t.Context(), Options{
		Log: slog.New(slog.DiscardHandler), Path: path, Home: "/home/u", StateDir: state,
		Apply: func(context.Context, *config.Config, *config.Config) {},
	})
	if err == nil {
		f.Keep(t.Context())
	}
	return f, err
}

// TestLastGood checks that neither a running daemon nor the next one accepts a bad file.
// The next one uses the copy of the last good state; without a copy it does not start.
func TestLastGood(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.json")
	write(t, path, 0)
	if _, err := opened(t, dir); err == nil {
		t.Fatal("a bad file is taken where there is no copy")
	}
	want := func(f *File, inFlight int, refused, byCopy bool) {
		t.Helper()
		why, copied := f.Refusal()
		if got := f.Current().Limits.InFlight; got != inFlight || (why != "") != refused || (copied != "") != byCopy {
			t.Errorf("in force %d, refused %q, copy %q; want %d, %v, %v", got, why, copied, inFlight, refused, byCopy)
		}
	}
	write(t, path, 11)
	f, err := opened(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	want(f, 11, false, false)
	write(t, path, 12)
	if changed, err := f.Reload(t.Context()); err != nil || !changed {
		t.Errorf("Reload = %v, %v", changed, err)
	}
	write(t, path, 0)
	if changed, err := f.Reload(t.Context()); err == nil || changed {
		t.Errorf("Reload of a bad file = %v, %v", changed, err)
	}
	want(f, 12, true, false)

	if f, err = opened(t, dir); err != nil {
		t.Fatal(err)
	}
	want(f, 12, true, true)
	if _, err := f.Reload(t.Context()); err == nil {
		t.Error("Reload of a bad file beside its copy returns no error")
	}
	want(f, 12, true, true)
	write(t, path, 13)
	if _, err := f.Reload(t.Context()); err != nil {
		t.Error(err)
	}
	want(f, 13, false, false)
}

// TestLastGoodOfAnotherFile has the login shell name another file, which is bad. The copy
// of that file's own last good state comes into force, not that of the first file.
func TestLastGoodOfAnotherFile(t *testing.T) {
	dir := t.TempDir()
	first, other := filepath.Join(dir, "config.json"), filepath.Join(dir, "other.json")
	write(t, first, 11)
	write(t, other, 21)
	f, err := opened(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	f.SetPath(other)
	if _, err := f.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, other, 0)
	if f, err = opened(t, dir); err != nil {
		t.Fatal(err)
	}
	f.SetPath(other)
	_, err = f.Reload(t.Context())
	why, copied := f.Refusal()
	if got := f.Current().Limits.InFlight; got != 21 || err == nil || why == "" || copied != CopyPath(dir, other) {
		t.Errorf("in force %d, %v, refused %q, copy %q; want 21 by %s", got, err, why, copied, CopyPath(dir, other))
	}
}

// TestOldCopies checks that only the copies of the newest files are kept, readable by this
// user alone.
func TestOldCopies(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.json"), 11)
	f, err := opened(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxCopies {
		f.writeCopy(t.Context(), fmt.Sprint("/path/", i), []byte("{}"))
	}
	entries, err := os.ReadDir(filepath.Join(dir, "config"))
	if err != nil || len(entries) != maxCopies {
		t.Errorf("%d copies, %v, want %d", len(entries), err, maxCopies)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", e.Name(), info.Mode(), err)
		}
	}
}
