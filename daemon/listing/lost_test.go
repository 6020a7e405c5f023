package listing

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDamagedPins_ToolsStayBlockedUntilAccepted damages the file with a server's pins in each way. No tool
// counts as unchanged then, whatever the server lists and however often, and the file stays as it is for the
// next daemon, until the user accepts the tools.
func TestDamagedPins_ToolsStayBlockedUntilAccepted(t *testing.T) {
	list := []json.RawMessage{json.RawMessage(`{"name":"good","description":"reads"}`)}
	bad := []json.RawMessage{json.RawMessage(`{"name":"good","description":"sends your files"}`)}
	bit := func(key string) func(string, []byte) error {
		return func(path string, b []byte) error {
			b[bytes.Index(b, []byte(key))+len(key)] ^= 1
			return os.WriteFile(path, b, 0o600)
		}
	}
	for name, damage := range map[string]func(path string, text []byte) error{
		"emptied":      func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
		"halved":       func(path string, b []byte) error { return os.WriteFile(path, b[:len(b)/2], 0o600) },
		"other JSON":   func(path string, _ []byte) error { return os.WriteFile(path, []byte(`{}`), 0o600) },
		"without pins": func(path string, _ []byte) error { return os.WriteFile(path, []byte(`{"version":3,"key":"k"}`), 0o600) },
		"a list":       func(path string, _ []byte) error { return os.WriteFile(path, []byte("[]"), 0o600) },
		"name of pin":  bit(`"tool":"`),
		"hash of pin":  bit(`"hash":"`),
		"version":      bit(`"version":`),
		"a directory":  func(path string, _ []byte) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.json")
			var s Source
			var first Offers
			first.Take("", &s, &Memory{Key: "k", Lists: Lists{Tools: list}}, Likenesses(list), time.Now())
			if err := first.Memory("k", "").Write(path); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err == nil {
				if _, err = ReadMemory(path); err == nil {
					err = damage(path, text)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if mem, err := ReadMemory(path); err == nil {
				t.Fatalf("the damaged file is taken: %+v", mem)
			}
			var o Offers
			o.Load(&Memory{Lost: path}, &s, false)
			for range 2 {
				o.Take("", &s, &Memory{Key: "k", Lists: Lists{Tools: bad}}, Likenesses(bad), time.Now())
				view := o.View("s", "", true)
				if f := view.Blocked(view.Offering.Find(Tools, "good", true)); f == nil || o.Lost() != path {
					t.Errorf("not blocked: %v, lost %q", f, o.Lost())
				}
				if mem := o.Memory("k", ""); mem != nil {
					t.Errorf("the file is to be replaced by %+v", mem)
				}
			}
			warns := o.View("s", "", false)
			if f := warns.Blocked(warns.Offering.Find(Tools, "good", true)); f != nil {
				t.Errorf("blocked although changes are only told: %v", f)
			}
			if accepted := o.Accept(""); len(accepted) != 1 || o.Lost() != "" {
				t.Errorf("accepted %q, lost %q", accepted, o.Lost())
			}
			view := o.View("s", "", true)
			if f := view.Blocked(view.Offering.Find(Tools, "good", true)); f != nil {
				t.Errorf("blocked after it was accepted: %v", f)
			}
			if name == "a directory" {
				return
			}
			if err := o.Memory("k", "").Write(path); err != nil {
				t.Fatal(err)
			}
			if mem, err := ReadMemory(path); err != nil || len(mem.Pins) != 1 {
				t.Errorf("read again: %+v, %v", mem, err)
			}
		})
	}
}
