package configfile

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"holdline/daemon/config"
)

// openedAt opens the file at path, as a daemon does whose state directory is state.
func openedAt(t *testing.T, state, path string) *File {
	t.Helper()
	f, err := openFile(t, state, path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// watch watches the file until an edit of before the call has settled.
func watch(t *testing.T, f *File) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*(pollInterval+settleTime))
	defer cancel()
	if err := f.Watch(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

// A damage is what can become of a file that had settings.
type damage struct {
	name string
	put  func(path string, good []byte) error
	says string // in the refusal
}

// rewritten is the damage that leaves the file with other bytes.
func rewritten(name, says string, change func(good []byte) []byte) damage {
	return damage{name, func(path string, good []byte) error {
		return os.WriteFile(path, change(bytes.Clone(good)), 0o600)
	}, says}
}

// replaced is the damage that puts something else into the place of the file, or nothing.
func replaced(name, says string, put func(path string) error) damage {
	return damage{name, func(path string, _ []byte) error { return errors.Join(os.Remove(path), put(path)) }, says}
}

// damages are the ways in which a file that had settings can be lost.
var damages = []damage{
	rewritten("emptied", "is empty", func([]byte) []byte { return nil }),
	rewritten("white space", "is empty", func([]byte) []byte { return []byte(" \n\t\r\n") }),
	rewritten("comments", "has nothing but comments", func(b []byte) []byte { return append([]byte("// "), b...) }),
	rewritten("a comment without its end", "", func([]byte) []byte { return []byte("/* {") }),
	rewritten("half", "", func(b []byte) []byte { return b[:len(b)/2] }),
	rewritten("without its last byte", "", func(b []byte) []byte { return b[:len(b)-1] }),
	rewritten("NUL bytes", "", func(b []byte) []byte { return make([]byte, len(b)) }),
	rewritten("a NUL byte behind it", "", func(b []byte) []byte { return append(b, 0) }),
	rewritten("null", "wants an object", func([]byte) []byte { return []byte("null\n") }),
	rewritten("a list", "wants an object", func([]byte) []byte { return []byte("[]") }),
	replaced("gone", "is not there any more", func(string) error { return nil }),
	replaced("a link to nothing", "is not there any more", func(path string) error {
		return os.Symlink(path+".none", path)
	}),
	replaced("a directory", "no regular file", func(path string) error { return os.Mkdir(path, 0o700) }),
	replaced("a pipe", "no regular file", func(path string) error { return syscall.Mkfifo(path, 0o600) }),
	replaced("a loop of links", "too many levels", func(path string) error { return os.Symlink(path, path) }),
	replaced("a file in the place of its directory", "not a directory", func(path string) error {
		return errors.Join(os.RemoveAll(filepath.Dir(path)), os.WriteFile(filepath.Dir(path), nil, 0o600))
	}),
}

// TestFileThatSaysNothing_LastGoodServes damages a file that had settings in each way. Neither the
// running daemon nor the next two take it, the copy of its last good state stays as it was, and
// the whole file comes into force by itself.
func TestFileThatSaysNothing_LastGoodServes(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				state := t.TempDir()
				path := filepath.Join(state, "etc", "config.json")
				if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				write(t, path, 11)
				good, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				f := openedAt(t, state, path)
				kept, err := os.ReadFile(CopyPath(state, path))
				if err != nil {
					t.Fatal(err)
				}
				if err := d.put(path, good); err != nil {
					t.Fatal(err)
				}
				refused := func(when string, byCopy bool) {
					t.Helper()
					why, copied := f.Refusal()
					if got := f.Current().Limits.InFlight; got != 11 || (copied != "") != byCopy ||
						!strings.Contains(why, d.says) || !strings.Contains(why, path) {
						t.Errorf("%s: in force %d, copy %q, refused %q; want 11, %v, %q about %s",
							when, got, copied, why, byCopy, d.says, path)
					}
					if now, err := os.ReadFile(CopyPath(state, path)); err != nil || !bytes.Equal(now, kept) {
						t.Errorf("%s: the copy is %q, %v, want %q", when, now, err, kept)
					}
				}
				if _, err := f.Reload(t.Context()); err == nil {
					t.Error("Reload takes it")
				}
				refused("running", false)
				for _, when := range []string{"the next daemon", "the one behind it"} {
					f = openedAt(t, state, path)
					refused(when, true)
				}
				watch(t, f)
				refused("watched", true)
				if info, err := os.Lstat(filepath.Dir(path)); err != nil || !info.IsDir() {
					if err := errors.Join(os.Remove(filepath.Dir(path)), os.Mkdir(filepath.Dir(path), 0o700)); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
				write(t, path, 12)
				watch(t, f)
				if why, copied := f.Refusal(); why != "" || copied != "" || f.Current().Limits.InFlight != 12 {
					t.Errorf("the file is whole again: in force %d, refused %q, copy %q",
						f.Current().Limits.InFlight, why, copied)
				}
			})
		})
	}
}

// TestFileThatSaysNothing_WhatIsMeant takes a file that says nothing where nothing is lost by it, or
// where its user has said so.
func TestFileThatSaysNothing_WhatIsMeant(t *testing.T) {
	for _, x := range []struct {
		name          string
		before, after string // of the file; "-" is none
		accept        bool
		inForce       int // calls in flight
		copied        bool
	}{
		{"first start without a file", "-", "-", false, 256, false},
		{"first start with an empty file", "", "", false, 256, false},
		{"an empty file goes", "", "-", false, 256, false},
		{"an object of nothing", `{"limits": {"in_flight": 11}}`, "{}", false, 256, true},
		{"an object of nothing goes", "{}", "-", false, 256, false},
		{"an object of nothing is emptied", "{}", "// none", false, 256, false},
		{"settings that are the defaults are emptied", `{"mcpServers": {}}`, "", false, 256, false},
		{"emptied, and accepted", `{"limits": {"in_flight": 11}}`, "", true, 256, false},
		{"gone, and accepted", `{"limits": {"in_flight": 11}}`, "-", true, 256, false},
		{"accepted, with settings", `{"limits": {"in_flight": 11}}`, `{"limits": {"in_flight": 12}}`, true, 12, true},
		{"filled", "", `{"limits": {"in_flight": 12}}`, false, 12, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			state := t.TempDir()
			path := filepath.Join(state, "config.json")
			put := func(text string) {
				t.Helper()
				err := os.WriteFile(path, []byte(text), 0o600)
				if text == "-" {
					err = os.Remove(path)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			put(x.before)
			f := openedAt(t, state, path)
			put(x.after)
			read := f.Reload
			if x.accept {
				read = f.Accept
			}
			if _, err := read(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, when := range []string{"running", "the next daemon"} {
				why, by := f.Refusal()
				_, err := Copy(state, path)
				if got := f.Current().Limits.InFlight; got != x.inForce || why != "" || by != "" || (err == nil) != x.copied {
					t.Errorf("%s: in force %d, refused %q, copy %q; the copy: %v; want %d, kept %v",
						when, got, why, by, err, x.inForce, x.copied)
				}
				f = openedAt(t, state, path)
			}
		})
	}
}

// TestDamagedCopy damages the copy of the last good state. Beside a good file it is written anew;
// beside a bad one no daemon starts by it, and the error names both.
func TestDamagedCopy(t *testing.T) {
	for _, x := range []damage{
		rewritten("emptied", "", func([]byte) []byte { return nil }),
		rewritten("half", "", func(b []byte) []byte { return b[:len(b)/2] }),
		rewritten("without its settings", "", func(b []byte) []byte { return b[:bytes.IndexByte(b, '\n')+1] }),
		rewritten("one digit", "", func(b []byte) []byte { return bytes.Replace(b, []byte("11"), []byte("12"), 1) }),
		rewritten("that of another file", "", func(b []byte) []byte {
			return bytes.Replace(b, []byte("config.json"), []byte("konfig.json"), 1)
		}),
		replaced("a directory", "", func(path string) error { return os.Mkdir(path, 0o700) }),
		replaced("a link", "", func(path string) error { return os.Symlink("/dev/null", path) }),
	} {
		t.Run(x.name, func(t *testing.T) {
			state := t.TempDir()
			path := filepath.Join(state, "config.json")
			write(t, path, 11)
			openedAt(t, state, path)
			whole, err := os.ReadFile(CopyPath(state, path))
			if err != nil {
				t.Fatal(err)
			}
			kept := CopyPath(state, path)
			damage := func() {
				t.Helper()
				err := errors.Join(os.RemoveAll(kept), os.WriteFile(kept, whole, 0o600), x.put(kept, whole))
				if err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range map[string]string{"empty": "", "bad": "{"} {
				damage()
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				_, err := openFile(t, state, path)
				if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), kept) {
					t.Errorf("%s file: %v, want an error that names it and its copy", name, err)
				}
			}
			damage()
			write(t, path, 11)
			openedAt(t, state, path)
			if info, err := os.Lstat(kept); err == nil && info.IsDir() {
				return // a directory stays; the log names it
			}
			if now, err := os.ReadFile(kept); err != nil || !bytes.Equal(now, whole) {
				t.Errorf("the copy beside a good file is %q, %v, want %q", now, err, whole)
			}
		})
	}
}

// TestErrorThatPasses_FileIsReadAgain has a daemon start while its process has no descriptors left.
// It serves by the copy, and reads the file, which nobody edits, once it can.
func TestErrorThatPasses_FileIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := t.TempDir()
		path := filepath.Join(state, "config.json")
		write(t, path, 11)
		openedAt(t, state, path)
		f := &File{o: openedAt(t, state, path).o, reading: make(chan struct{}, 1)}
		f.path.Store(&path)
		cfg, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		f.current.Store(&cfg)
		f.last.Store(&reading{path: path})
		withoutDescriptors(t, func() {
			if _, err := f.Reload(t.Context()); !errors.Is(err, syscall.EMFILE) {
				t.Errorf("Reload without descriptors: %v", err)
			}
		})
		if why, _ := f.Refusal(); why == "" {
			t.Error("no refusal while the file cannot be read")
		}
		watch(t, f)
		if why, _ := f.Refusal(); why != "" || f.Current().Limits.InFlight != 11 {
			t.Errorf("in force %d, refused %q, although the file can be read again", f.Current().Limits.InFlight, why)
		}
	})
}

// withoutDescriptors calls do while this process can open no file.
func withoutDescriptors(t *testing.T, do func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := was
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	do()
}
