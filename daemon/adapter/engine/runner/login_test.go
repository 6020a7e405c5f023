package runner

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"holdline/daemon/adapter/engine"
)

// TestLoginIsRenewed_BothFilesHaveTheNewOne checks that a login that the program renews in its copy
// reaches the user's file, and the other way round, and that nothing else does.
func TestLoginIsRenewed_BothFilesHaveTheNewOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	of := engine.Login{
		Own: filepath.Join(dir, "own"), Copy: filepath.Join(dir, "run", "copy"),
		Give: func(own []byte) []byte { return own },
		Take: func(_, changed []byte) []byte {
			if string(changed) == "torn" {
				return nil
			}
			return changed
		},
	}
	if l, err := newLogin(&of); l != nil || err != nil {
		t.Fatalf("without a file: %+v, %v", l, err)
	}
	put := func(path, text string) {
		t.Helper()
		temp := path + ".temp"
		if err := errors.Join(os.WriteFile(temp, []byte(text), 0o600), os.Rename(temp, path)); err != nil {
			t.Fatal(err)
		}
	}
	put(of.Own, "first")
	put(secret, "secret")
	l, err := newLogin(&of)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name      string
		do        func()
		own, copy string
		fails     bool
	}{
		{"nothing", func() {}, "first", "first", false},
		{"the program renews it", func() { put(of.Copy, "second") }, "second", "second", false},
		{"the user logs in again", func() { put(of.Own, "third") }, "third", "third", false},
		{"the program is writing", func() { put(of.Copy, "torn") }, "third", "torn", false},
		{"the program has written", func() { put(of.Copy, "fourth") }, "fourth", "fourth", false},
		{"both", func() { put(of.Copy, "fifth"); put(of.Own, "sixth") }, "sixth", "sixth", false},
		{"a link to another file", func() {
			if err := errors.Join(os.Remove(of.Copy), os.Symlink(secret, of.Copy)); err != nil {
				t.Fatal(err)
			}
		}, "sixth", "secret", true},
	} {
		step.do()
		if err := l.sync(); (err != nil) != step.fails {
			t.Errorf("%s: %v", step.name, err)
		}
		own, err1 := os.ReadFile(of.Own)
		copied, err2 := os.ReadFile(of.Copy)
		if err := errors.Join(err1, err2); err != nil || string(own) != step.own || string(copied) != step.copy {
			t.Errorf("%s: own %s, copy %s, %v", step.name, own, copied, err)
		}
	}
}
