package hosted

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRecall checks that a stopped server stays stopped whatever its configuration, and
// that an ejected one stays ejected only while its configuration is unchanged.
func TestRecall(t *testing.T) {
	dir := t.TempDir()
	m := New(Options{Log: slog.New(slog.DiscardHandler), StateDir: dir, CatalogDir: t.TempDir()})
	for _, tc := range []struct {
		file    string
		ejected []string
	}{
		{`{"version":1,"stopped":true,"ejected":["p"]}`, []string{"p"}}, // written by an older daemon
		{`{"version":1,"key":"k","stopped":true,"ejected":["p"]}`, []string{"p"}},
		{`{"version":1,"key":"other","stopped":true,"ejected":["p"]}`, nil},
	} {
		if err := os.WriteFile(filepath.Join(dir, "s.json"), []byte(tc.file), 0o600); err != nil {
			t.Fatal(err)
		}
		s := m.newServer(&Spec{Name: "s", Key: "k"})
		if err := s.recall(); err != nil || !s.stopped || !slices.Equal(s.ejected, tc.ejected) {
			t.Errorf("%s: stopped %v, ejected %v, %v", tc.file, s.stopped, s.ejected, err)
		}
	}
	// A server that was removed and is configured again is as the user left it.
	m.Configure([]Spec{{Name: "s", Key: "k", Lazy: true}})
	if s := m.servers["s"]; !s.stopped || s.ejected != nil {
		t.Errorf("configured again: stopped %v, ejected %v", s.stopped, s.ejected)
	}
}
