package material

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDirectories checks that directories that hold secrets are readable only if a root
// names them.
func TestDirectories(t *testing.T) {
	base := resolved(t.TempDir())
	home := filepath.Join(base, "home", "u")
	for _, dir := range []string{".ssh/keys", "p/.git", "q"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, root, cwd string
		roots           []string
		ok              bool
		says            string // a part of the refusal
	}{
		{"project", home + "/p", home + "/p", nil, true, ""},
		{"dot directory of a project", home + "/p", home + "/p/.git", nil, true, ""},
		{"home as a project", home, home, nil, false, " is the home directory,"},
		{"below home as a project", home, home + "/q", nil, true, ""},
		{"dot directory of home", home, home + "/.ssh", nil, false, " is in a dot directory"},
		{"below it", home, home + "/.ssh/keys", nil, false, " is in a dot directory"},
		{"above home", "/", base, nil, false, " is a directory that holds the home directory,"},
		{"root", "/", "/", nil, false, "/ is the root directory,"},
		{"below the root as a project", "/", "/usr", nil, false, ""},
		{"a project above home", base, home + "/p", nil, false, ""},
		{"a project above home, allowed", base, home + "/p", []string{home + "/p"}, true, ""},
		{"other project", home + "/p", home + "/q", nil, false, "outside of the client"},
		{"other project, allowed", home + "/p", home + "/q", []string{home + "/q"}, true, ""},
		{"home allowed", home + "/p", home, []string{home}, true, ""},
		{"home allowed, not its dot directories", home + "/p", home + "/.ssh", []string{home}, false, ""},
		{"dot directory allowed", home + "/p", home + "/.ssh/keys", []string{home + "/.ssh"}, true, ""},
		{"root allowed, not home", home + "/p", home, []string{"/"}, false, ""},
		{"root allowed", home + "/p", "/", []string{"/"}, true, ""},
		{"above home, allowed", home + "/p", base, []string{base}, true, ""},
		{"above home, by what holds it", home + "/p", base, []string{filepath.Dir(base)}, false, ""},
	} {
		r := Reader{Home: home, Roots: tt.roots, Project: tt.root}
		_, _, err := r.Directory("cwd", tt.root, tt.cwd)
		if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}
	}
}
