package project

import (
	"os"
	"path/filepath"
	"testing"
)

// makeTree makes dirs below a new directory with these modes, and returns that directory, which
// has no links.
func makeTree(t *testing.T, dirs map[string]os.FileMode) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for dir := range dirs {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for dir, mode := range dirs {
		if err := os.Chmod(filepath.Join(root, dir), mode); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestRootAboveDirOthersCanWrite_IsNotTaken checks that nobody else can make a directory above the
// user's the project, and that a user who works in such a directory has it as the project.
func TestRootAboveDirOthersCanWrite_IsNotTaken(t *testing.T) {
	root := makeTree(t, map[string]os.FileMode{
		".git": 0o755, "tmp/.git": 0o755, "tmp/work/deep": 0o755, "tmp/own/.git": 0o755, "tmp/own/deep": 0o755,
		"tmp": 0o777 | os.ModeSticky, "open/work": 0o755, "open": 0o777, "group/work": 0o755,
	})
	if err := os.Chown(filepath.Join(root, "group"), -1, 54321); err == nil { // needs root
		if err := os.Chmod(filepath.Join(root, "group"), 0o775); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Chmod(filepath.Join(root, "group"), 0o757); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		"tmp/work": "tmp/work", "tmp/work/deep": "tmp/work/deep", "tmp/own/deep": "tmp/own", "tmp": "tmp",
		"open/work": "open/work", "open": "open", "group/work": "group/work",
	} {
		if got := Root(filepath.Join(root, dir)); got != filepath.Join(root, want) {
			t.Errorf("root of %s: %s, want %s", dir, got, want)
		}
		if got := RootOf(filepath.Join(root, dir)); got != filepath.Join(root, want) {
			t.Errorf("resolved root of %s: %s, want %s", dir, got, want)
		}
	}
	if err := os.Symlink(filepath.Join(root, "tmp/work"), filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		filepath.Join(root, "tmp/own"): filepath.Join(root, "tmp/own"), filepath.Join(root, "link"): root, filepath.Join(root, "absent"): "", "relative": "", "": "",
	} {
		if got := RootOf(dir); got != want {
			t.Errorf("root of %q: %q, want %q", dir, got, want)
		}
	}
}

// TestRootOfAnotherUsersDir_NeedsSafeDirectory checks the .git of a directory that another user
// owns. It needs root, which alone can give a directory to another user.
func TestRootOfAnotherUsersDir_NeedsSafeDirectoryRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives a directory to another user")
	}
	root := makeTree(t, map[string]os.FileMode{"theirs/.git": 0o755, "theirs/mid/mine": 0o755})
	theirs, mid, mine := filepath.Join(root, "theirs"), filepath.Join(root, "theirs/mid"), filepath.Join(root, "theirs/mid/mine")
	for _, dir := range []string{theirs, mid} {
		if err := os.Chown(dir, 54321, 54321); err != nil {
			t.Fatal(err)
		}
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "config"))
	defer func(files []string) { systemFiles = files }(systemFiles)
	system := filepath.Join(home, "system")
	systemFiles = []string{system}
	for _, c := range []struct {
		about, file, text, want string
	}{
		{"no configuration", "", "", mine},
		{"the directory by its path", ".gitconfig", "[user]\n\tdirectory = x\n[safe]\n\tdirectory = " + theirs + " ; ours\n", theirs},
		{"any", ".gitconfig", "[Safe]\n\tDirectory=*\n", theirs},
		{"all below", ".gitconfig", "[safe] directory = \"" + root + "/*\"\n", theirs},
		{"the machine's configuration", "system", "[safe]\n\tdirectory = " + theirs + "\n", theirs},
		{"the user's other file", "config/git/config", "[safe]\n\tdirectory = " + theirs + "\n", theirs},
		{"another directory", ".gitconfig", "[safe]\n\tdirectory = " + mid + "\n", mine},
		{"taken back", ".gitconfig", "[safe]\n\tdirectory = *\n\tdirectory =\n", mine},
		{"another section", ".gitconfig", "[safe \"x\"]\n\tdirectory = *\n", mine},
	} {
		if c.file != "" {
			path := filepath.Join(home, c.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := Root(mine); got != c.want {
			t.Errorf("%s: root %s, want %s", c.about, got, c.want)
		}
		if c.file != "" {
			if err := os.Remove(filepath.Join(home, c.file)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := Root(theirs); got != theirs {
		t.Errorf("the directory in which the client starts: root %s, want %s", got, theirs)
	}
	if err := os.MkdirAll(filepath.Join(mid, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := Root(mine); got != mine {
		t.Errorf("with a .git of the other user: root %s, want %s", got, mine)
	}
}
