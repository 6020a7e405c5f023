package envfile

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// TestSet_ValuesAreReadAsTheyWereGiven sets variables in a file that does not exist yet, and reads them back. The file
// is for its user alone, and what else is in it stays.
func TestSet_ValuesAreReadAsTheyWereGiven(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdline", "env")
	values := []string{"", "plain", " spaces ", `"quoted"`, `'it'`, `"`, "a=b#c", "$X ${Y}", `x"`}
	for _, value := range values {
		if err := Set(t.Context(), path, "A", value); err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		if got, err := Read(path); err != nil || !slices.Equal(got, []string{"A=" + value}) {
			t.Errorf("%q: %q, %v", value, got, err)
		}
	}
	for _, bad := range []string{"a\nB=x", "a\rb", "a\x00"} {
		if err := Set(t.Context(), path, "A", bad); err == nil {
			t.Errorf("%q was kept", bad)
		}
	}
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): os.ModeDir | 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if err := os.WriteFile(path, []byte("# mine\nexport A=1\nAB=2\nA=3"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Set(t.Context(), path, "A", "4"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); string(b) != "# mine\nAB=2\nA=4\n" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if had, err := Unset(t.Context(), path, "A"); !had || err != nil {
		t.Errorf("Unset = %v, %v", had, err)
	}
	if had, err := Unset(t.Context(), path, "A"); had || err != nil {
		t.Errorf("a second Unset = %v, %v", had, err)
	}
}

// TestSet_AtOnce checks that of concurrent edits none is lost.
func TestSet_AtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	var all sync.WaitGroup
	for _, name := range []string{"A", "B", "C", "D", "E", "F"} {
		all.Go(func() {
			if err := Set(t.Context(), path, name, name); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := Read(path); err != nil || len(got) != 6 {
		t.Errorf("%q, %v", got, err)
	}
}
