package protocol

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"holdline/protocol/jsonrpc"
)

const uuid = "01234567-89ab-cdef-0123-456789abcdef"

// TestParseGreeting checks which lines are greetings, and the code with which a bad one is
// refused.
func TestParseGreeting(t *testing.T) {
	for _, tc := range []struct {
		name, line, code string // code is "" if the greeting is accepted, "none" if the line is no greeting
	}{
		{"good", `{"holdline":1,"role":"mcp","session":"` + uuid + `","resume":false}`, ""},
		{"control", `{"holdline":1,"role":"control"}`, ""},
		{
			"resume",
			`{"holdline":1,"role":"mcp","session":"` + uuid +
				`","resume":true,"store":"x","next":7,"pending":[3,5],"eof":true}`,
			"",
		},
		{"unknown fields are for later versions", `{"holdline":1,"role":"control","colour":"red"}`, ""},
		{"MCP", `{"jsonrpc":"2.0","id":1,"method":"initialize"}`, "none"},
		{"not JSON", `hello`, "none"},
		{"empty", ``, "none"},
		{"broken", `{"holdline":1,`, RefusedGreeting},
		{"version 2", `{"holdline":2,"role":"mcp"}`, RefusedVersion},
		{"version 1.5", `{"holdline":1.5,"role":"mcp"}`, RefusedVersion},
		{"version word", `{"holdline":"one"}`, RefusedGreeting},
		{"role", `{"holdline":1,"role":"king"}`, RefusedGreeting},
		{"no session", `{"holdline":1,"role":"mcp"}`, RefusedGreeting},
		{"session not a uuid", `{"holdline":1,"role":"mcp","session":"../../x"}`, RefusedGreeting},
		{
			"identity of control characters",
			`{"holdline":1,"role":"mcp","session":"` + uuid + `","identity":"a\u001b[2J"}`,
			RefusedGreeting,
		},
		{
			"identity too long",
			`{"holdline":1,"role":"mcp","session":"` + uuid + `","identity":"` + strings.Repeat("a", maxName+1) + `"}`,
			RefusedGreeting,
		},
		{
			"project too long",
			`{"holdline":1,"role":"mcp","session":"` + uuid + `","project":"` + strings.Repeat("a", maxName+1) + `"}`,
			RefusedGreeting,
		},
		{
			"longest names",
			`{"holdline":1,"role":"mcp","session":"` + uuid + `","identity":"` + strings.Repeat("ä", maxName/2) +
				`","server":"s"}`,
			"",
		},
		{
			"identity twice",
			`{"holdline":1,"role":"mcp","session":"` + uuid + `","identity":"a","identity":"b"}`,
			RefusedGreeting,
		},
		{
			"token in two cases",
			`{"holdline":1,"role":"mcp","session":"` + uuid + `","token":"a","Token":"b"}`,
			RefusedGreeting,
		},
		{
			"token with a Kelvin sign",
			`{"holdline":1,"role":"mcp","session":"` + uuid + `","token":"a","to\u212aen":"b"}`,
			RefusedGreeting,
		},
		{
			"session with a long s",
			`{"holdline":1,"role":"mcp","ſession":"` + uuid + `"}`,
			RefusedGreeting,
		},
		{"wrong type", `{"holdline":1,"role":"mcp","session":"` + uuid + `","cwd":1}`, RefusedGreeting},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, err := ParseGreeting([]byte(tc.line))
			refusal, _ := errors.AsType[*Refusal](err)
			switch {
			case tc.code == "" && err != nil:
				t.Errorf("error %v", err)
			case tc.code == "none" && !errors.Is(err, ErrNoGreeting):
				t.Errorf("got %+v, %v, want no greeting", g, err)
			case tc.code != "" && tc.code != "none" && (refusal == nil || refusal.Code != tc.code):
				t.Errorf("got %v, want a refusal %s", err, tc.code)
			}
		})
	}
}

// TestWelcome checks the bytes of a welcome, and that it is read as it was written.
func TestWelcome(t *testing.T) {
	w := Welcome{
		Holdline: 1, Store: "s", ResumeWindowMS: 90000,
		Daemon: DaemonInfo{Version: "0.1.0", PID: 99, Epoch: 3, Managed: "no"},
	}
	line := Append(nil, w)
	want := `{"holdline":1,` +
		`"resumed":false,"store":"s","resume_window_ms":90000,"daemon":{"version":"0.1.0","pid":99,"epoch":3,"managed":"no"}}` + "\n"
	if string(line) != want {
		t.Errorf("welcome\n got %s\nwant %s", line, want)
	}
	if got, err := ParseWelcome(line); err != nil || got != w {
		t.Errorf("ParseWelcome = %+v, %v", got, err)
	}
	refusal := Append(nil, Welcome{Holdline: 1, Error: &Refusal{RefusedIdentity, "no"}})
	if want := `{"holdline":1,"resumed":false,"error":{"code":"identity_refused","message":"no"}}` +
		"\n"; string(refusal) != want {
		t.Errorf("refusal\n got %s\nwant %s", refusal, want)
	}
	_, err := ParseWelcome(refusal)
	if r, ok := errors.AsType[*Refusal](err); !ok || r.Code != RefusedIdentity {
		t.Errorf("refusal = %v", err)
	}
	_, err = ParseWelcome(Append(nil, Control{Holdline: 1, Bye: ByeStopped, Message: "holdline was stopped"}))
	if r, ok := errors.AsType[*Refusal](err); !ok || r.Code != RefusedStopping || r.Message != "holdline was stopped" {
		t.Errorf("a bye in place of the welcome = %v, want the refusal %s", err, RefusedStopping)
	}
	for _, line := range []string{``, `{}`, `HTTP/1.1 400`, `{"jsonrpc":"2.0"}`, `{"holdline":2}`} {
		if _, err := ParseWelcome([]byte(line)); err == nil {
			t.Errorf("ParseWelcome(%q) gives no error", line)
		}
	}
}

// TestControl checks the bytes of control lines, and that they are read as they were
// written.
func TestControl(t *testing.T) {
	n, yes := int64(7), true
	for _, tc := range []struct {
		c    Control
		want string
	}{
		{Control{Holdline: 1, Ack: &n}, `{"holdline":1,"ack":7}`},
		{Control{Holdline: 1, Seen: &n}, `{"holdline":1,"seen":7}`},
		{Control{Holdline: 1, Replay: &n, Answered: &yes}, `{"holdline":1,"replay":7,"answered":true}`},
		{Control{Holdline: 1, Bye: ByeStopped}, `{"holdline":1,"bye":"stopped"}`},
	} {
		line := bytes.TrimSpace(Append(nil, tc.c))
		if string(line) != tc.want {
			t.Errorf("got %s, want %s", line, tc.want)
		}
		if !IsControl(line) {
			t.Errorf("%s is not taken for a control line", line)
		}
	}
	for _, line := range []string{
		`{"jsonrpc":"2.0","holdline":1}`, `{"holdline":1,"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"id":1,"holdline":1}`, ``,
	} {
		if IsControl([]byte(line)) {
			t.Errorf("%s is taken for a control line", line)
		}
	}
}

func FuzzParseGreeting(f *testing.F) {
	f.Add([]byte(`{"holdline":1,"role":"mcp","session":"` + uuid + `","resume":true,"next":7,"pending":[3]}`))
	f.Add([]byte(`{"holdline":1,"role":"control"}`))
	f.Add([]byte(`{"holdline":9}`))
	f.Add([]byte(`{"jsonrpc":"2.0"}`))
	f.Add([]byte(strings.Repeat(`[`, 100)))
	f.Fuzz(func(t *testing.T, line []byte) {
		g, err := ParseGreeting(line)
		if err != nil {
			return
		}
		if g.Role != RoleMCP && g.Role != RoleControl {
			t.Errorf("role %q was taken", g.Role)
		}
		again, err := ParseGreeting(bytes.TrimSpace(Append(nil, g)))
		if err != nil || again.Session != g.Session || again.Identity != g.Identity {
			t.Errorf("%+v written and read again is %+v, %v", g, again, err)
		}
	})
}

// TestLongWelcome checks that a line too long for a welcome is not taken for a daemon's.
func TestLongWelcome(t *testing.T) {
	lines := jsonrpc.NewLines(strings.NewReader(strings.Repeat("x", MaxGreeting+1)+"\n"), MaxGreeting)
	if w, err := ReadWelcome(lines, nil); !errors.Is(err, ErrNoWelcome) {
		t.Errorf("%+v, %v", w, err)
	}
}

// TestNumber checks that the number of a line is found behind a message, and that a message without
// one is left as it is.
func TestNumber(t *testing.T) {
	for _, n := range []int64{1, 9, 10, 1234567890123} {
		line := AppendNumber([]byte(`{"id":1}`), n)
		if message, got := CutNumber(line); string(message) != `{"id":1}` || got != n {
			t.Errorf("of %s: %s, %d", line, message, got)
		}
	}
	for _, line := range []string{``, `7`, ` 7`, `{}`, `{} `, `{}7`, `{"a":7}`, `[7] 7`, `{} x7`, `{}  `} {
		if message, n := CutNumber([]byte(line)); string(message) != line || n != 0 {
			t.Errorf("of %s: %s, %d", line, message, n)
		}
	}
}

// TestGreetingKeys checks that all members of a greeting are protected from other spellings.
func TestGreetingKeys(t *testing.T) {
	var keys []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Greeting]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		keys = append(keys, name)
	}
	if !slices.Equal(keys, greetingKeys.Known) {
		t.Errorf("a greeting has %q, and %q are known", keys, greetingKeys.Known)
	}
}
