package contrib

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// plist parses a property list of dictionaries, arrays, strings, integers and booleans.
func plist(t *testing.T, b []byte) any {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(string(b)))
	if root := start(t, d); root == nil || root.Name.Local != "plist" {
		t.Fatalf("the root is %v, want plist", root)
	}
	return value(t, d, start(t, d))
}

// start returns the next element that begins, or nil if one ends before.
func start(t *testing.T, d *xml.Decoder) *xml.StartElement {
	t.Helper()
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			return &tok
		case xml.EndElement:
			return nil
		}
	}
}

// value returns the value of an element of a property list.
func value(t *testing.T, d *xml.Decoder, e *xml.StartElement) any {
	t.Helper()
	if e == nil {
		t.Fatal("a value is missing")
	}
	text := func() string {
		var s string
		if err := d.DecodeElement(&s, e); err != nil {
			t.Fatal(err)
		}
		return s
	}
	switch e.Name.Local {
	case "dict":
		m := map[string]any{}
		for k := start(t, d); k != nil; k = start(t, d) {
			if k.Name.Local != "key" {
				t.Fatalf("<%s> in place of a key", k.Name.Local)
			}
			e = k
			key := text()
			if _, twice := m[key]; twice {
				t.Errorf("%s stands twice", key)
			}
			m[key] = value(t, d, start(t, d))
		}
		return m
	case "array":
		var list []any
		for x := start(t, d); x != nil; x = start(t, d) {
			list = append(list, value(t, d, x))
		}
		return list
	case "string":
		return text()
	case "integer":
		n, err := strconv.Atoi(text())
		if err != nil {
			t.Fatal(err)
		}
		return n
	case "true", "false":
		text()
		return e.Name.Local == "true"
	}
	t.Fatalf("<%s> is nothing that a property list has", e.Name.Local)
	return nil
}

// TestLaunchAgent parses the LaunchAgent and checks its keys.
func TestLaunchAgent(t *testing.T) {
	for _, c := range []struct{ bin, home string }{
		{launchBin, launchHome},
		{"/Users/me/.local/bin/holdline", "/Users/me"},
		{"/opt/a & b/<holdline>", "/Users/\"o'hara\""},
	} {
		m, ok := plist(t, LaunchAgent(c.bin, c.home)).(map[string]any)
		if !ok {
			t.Fatalf("%q: no dictionary", c.bin)
		}
		if got := m["Label"]; got != LaunchLabel || LaunchAgentFile != LaunchLabel+".plist" {
			t.Errorf("label %v in %s", got, LaunchAgentFile)
		}
		want := []any{c.bin, "daemon", "--started-by", "launchd"}
		if got, ok := m["ProgramArguments"].([]any); !ok || !slices.Equal(got, want) {
			t.Errorf("ProgramArguments = %v, want %v", m["ProgramArguments"], want)
		}
		for _, key := range []string{"StandardOutPath", "StandardErrorPath"} {
			if got, want := m[key], c.home+"/"+LaunchLog; got != want {
				t.Errorf("%s = %v, want %v", key, got, want)
			}
		}
		for key, want := range map[string]any{"RunAtLoad": true, "AbandonProcessGroup": true, "ExitTimeOut": 25} {
			if m[key] != want {
				t.Errorf("%s = %v, want %v", key, m[key], want)
			}
		}
		// Restart only after a failure: a daemon that was stopped, or that another one
		// replaced, must stay down.
		alive, ok := m["KeepAlive"].(map[string]any)
		if !ok || len(alive) != 1 || alive["SuccessfulExit"] != false {
			t.Errorf("KeepAlive = %v", m["KeepAlive"])
		}
		if _, has := m["Sockets"]; has {
			t.Error("launchd makes a socket that nobody fetches")
		}
	}
}

// TestLaunchProgram checks that the program of a LaunchAgent is read as it was written, and
// that a damaged file has none.
func TestLaunchProgram(t *testing.T) {
	for _, bin := range []string{"/usr/local/bin/holdline", "/Users/a & b/<bin>/holdline"} {
		if got := LaunchProgram(LaunchAgent(bin, "/Users/u")); got != bin {
			t.Errorf("it starts %q, want %q", got, bin)
		}
	}
	for _, text := range []string{
		"", "nothing", "<plist><dict><key>Label</key><string>x</string></dict></plist>",
		"<plist><dict><key>ProgramArguments</key><array><string>",
	} {
		if got := LaunchProgram([]byte(text)); got != "" {
			t.Errorf("%q starts %q", text, got)
		}
	}
}
