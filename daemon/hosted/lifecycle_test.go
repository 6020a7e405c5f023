package hosted

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRecall: a stopped server stays so whatever is configured of it, and an
// ejected one only while it is configured as it was.
func TestRecall(t *testing.T) {
	dir := t.TempDir()
	m := New(Options{Log: slog.New(slog.DiscardHandler), StateDir: dir, CatalogDir: t.TempDir()})
	for _, tc := range []struct {
		file    string
		ejected []string
	}{
		{`{"version":1,"stopped":true,"ejected":["p"]}`, []string{"p"}}, // of an older daemon
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
	// One that was left out and is configured again is as the user has left it.
	m.Configure([]Spec{{Name: "s", Key: "k", Lazy: true}})
	if s := m.servers["s"]; !s.stopped || s.ejected != nil {
		t.Errorf("configured again: stopped %v, ejected %v", s.stopped, s.ejected)
	}
}
