package edit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"holdline/daemon/config"
)

// TestSwap checks that a file is replaced only if it is still the expected one, and only by
// a valid one.
func TestSwap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new/c.json")
	one, two := []byte("{}\n"), []byte(`{"log": {"level": "warn"}}`)
	if err := Swap(t.Context(), path, nil, one); err != nil {
		t.Fatal(err)
	}
	if err := Swap(t.Context(), path, two, two); !errors.Is(err, ErrChanged) {
		t.Errorf("Swap of another file = %v", err)
	}
	if err := Swap(t.Context(), path, one, []byte(`{"lock": 1}`)); err == nil {
		t.Error("Swap writes what is not valid")
	}
	if err := Swap(t.Context(), path, one, two); err != nil {
		t.Error(err)
	}
	if err := Swap(t.Context(), path, one, nil); !errors.Is(err, ErrChanged) {
		t.Errorf("removal of another file = %v", err)
	}
	if got, err := os.ReadFile(path); string(got) != string(two) || err != nil {
		t.Errorf("the file is %q, %v", got, err)
	}
	if err := Swap(t.Context(), path, two, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}

// TestSwapTooLarge checks that a file of which only a part was read is not replaced.
func TestSwapTooLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	text := append([]byte("{}\n"), bytes.Repeat([]byte("// more\n"), config.MaxFile/4)...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := config.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	err = Swap(t.Context(), path, before, []byte("{}\n"))
	if now, _ := os.ReadFile(path); err == nil || !bytes.Equal(now, text) {
		t.Errorf("%v; the file has %d bytes, had %d", err, len(now), len(text))
	}
}
