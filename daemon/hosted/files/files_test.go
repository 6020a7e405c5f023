package files

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"holdline/daemon/listing"
)

// TestFileOfOffersCannotBeRead_PinsAreLost checks that a server whose file is damaged counts as one whose pins
// are lost, with the path of the file, and one without a file as new.
func TestFileOfOffersCannotBeRead_PinsAreLost(t *testing.T) {
	f := &Files{CatalogDir: t.TempDir(), StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	if _, mem := f.Read("new", "k"); mem != nil {
		t.Errorf("a new server: %+v", mem)
	}
	for name, text := range map[string]string{"empty": "", "other": "{}", "torn": `{"version":2,"key":"k","pi`} {
		path := filepath.Join(f.CatalogDir, name+".json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, mem := f.Read(name, "k"); mem == nil || mem.Lost != path {
			t.Errorf("%s: %+v", name, mem)
		}
		if err := f.WriteOffers(name, func() *listing.Memory { return nil }); err != nil {
			t.Error(err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("%s is %q now, %v", name, now, err)
		}
	}
}
