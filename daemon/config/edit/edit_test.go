package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/jsonedit"

	"github.com/tailscale/hujson"
)

// edited runs edits on a file with this text, and returns the text afterwards.
func edited(t *testing.T, text string, edits ...func(path string) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, e := range edits {
		if err := e(path); err != nil {
			t.Fatalf("edit %d of\n%s: %v", i, text, err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func adds(t *testing.T, name, server string) func(string) error {
	t.Helper()
	return func(path string) error { return AddServer(t.Context(), path, name, []byte(server), false) }
}

func removes(t *testing.T, name string) func(string) error {
	t.Helper()
	return func(path string) error { return RemoveServer(t.Context(), path, name) }
}

func enables(t *testing.T, name string, on bool) func(string) error {
	t.Helper()
	return func(path string) error {
		_, err := EnableServer(t.Context(), path, name, on)
		return err
	}
}

// TestEdit checks that adding, removing and switching servers leaves the rest of the file,
// with its comments, as it is.
func TestEdit(t *testing.T) {
	const full = `// what the daemon does
{
    "log": {"level": "warn"}, // loud enough
    "mcpServers": {
        // the files
        "files": {
            "command": "npx", // from npm
            "args": ["-y", "server-files"],
        }, // behind the files
        /* about
           the web */
        "web": {"url": "https://x"}, // behind the web
    },
}
`
	for name, x := range map[string]struct {
		in   string
		edit func(string) error
		want string
	}{
		"add to nothing": {
			"", adds(t, "a", `{"command":"x"}`),
			"{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\"\n    }\n  }\n}\n",
		},
		"add to an empty object": {
			`{}`, adds(t, "a", `{"command":"x"}`),
			"{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\"\n    }\n  }\n}",
		},
		"add, with the file's indentation, comments and comma": {
			full, adds(t, "new", `{"command": "x", /* gone */}`),
			strings.Replace(full, "// behind the web\n",
				"// behind the web\n        \"new\": {\n            \"command\": \"x\"\n        },\n", 1),
		},
		"add without a comma at the end": {
			"{\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"x\"} // about a\n\t}\n}\n",
			adds(t, "b", `{"command": "y"}`),
			"{\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"x\"}, // about a\n\t\t\"b\": {\n\t\t\t\"command\": \"y\"\n\t\t}\n\t}\n}\n",
		},
		"add where servers are missing": {
			"{\n  // nothing\n  \"log\": {}, // log\n}\n", adds(t, "a", `{"command": "x"}`),
			"{\n  // nothing\n  \"log\": {}, // log\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\"\n    }\n  },\n}\n",
		},
		"add to a single line": {
			`{"mcpServers": {"a": {"command": "x"}}}`, adds(t, "b", `{"url": "http://y"}`),
			`{"mcpServers": {"a": {"command": "x"}, "b": {"url": "http://y"}}}`,
		},
		"add below a comment in an empty object": {
			"{\n  \"mcpServers\": { // none yet\n  }\n}", adds(t, "a", `{"command": "x"}`),
			"{\n  \"mcpServers\": { // none yet\n    \"a\": {\n      \"command\": \"x\"\n    }\n  }\n}",
		},
		"remove the first, with its comments": {
			full, removes(t, "files"),
			strings.Replace(full,
				full[strings.Index(full, "        // the files"):strings.Index(full, "        /* about")], "", 1),
		},
		"remove the last, with its comments": {
			full, removes(t, "web"),
			strings.Replace(full,
				full[strings.Index(full, "        /* about"):strings.Index(full, "    },\n}")], "", 1),
		},
		"remove the last without a comma at the end": {
			"{\"mcpServers\": {\n  \"a\": {\"command\": \"x\"}, // about a\n  \"b\": {\"command\": \"y\"} // about b\n}}", removes(t, "b"),
			"{\"mcpServers\": {\n  \"a\": {\"command\": \"x\"} // about a\n}}",
		},
		"remove the only one": {
			"{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}\n  }\n}", removes(t, "a"),
			"{\n  \"mcpServers\": {}\n}",
		},
		"remove from a single line": {
			`{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}, "c": {"command": "z"}}}`, removes(t, "a"),
			`{"mcpServers": {"b": {"command": "y"}, "c": {"command": "z"}}}`,
		},
		"remove the last from a single line": {
			`{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}`, removes(t, "b"),
			`{"mcpServers": {"a": {"command": "x"}}}`,
		},
		"disable": {
			full, enables(t, "files", false),
			strings.Replace(full, "\"server-files\"],\n", "\"server-files\"],\n            \"disabled\": true,\n", 1),
		},
		"disable what says enabled": {
			`{"mcpServers": {"a": {"enabled": true, "command": "x"}}}`, enables(t, "a", false),
			`{"mcpServers": {"a": {"enabled": false, "command": "x"}}}`,
		},
		"disable what says that it is not": {
			`{"mcpServers": {"a": {"disabled": false, "command": "x"}}}`, enables(t, "a", false),
			`{"mcpServers": {"a": {"disabled": true, "command": "x"}}}`,
		},
		"disable what is disabled": {
			`{"mcpServers": {"a": {"enabled": false, "command": "x"}}}`, enables(t, "a", false),
			`{"mcpServers": {"a": {"enabled": false, "command": "x"}}}`,
		},
		"enable, whatever disabled it": {
			`{"mcpServers": {"a": {"enabled": false, "disabled": true, "command": "x", "holdline": {"disabled": true, "lazy": true}}}}`, enables(t, "a", true),
			`{"mcpServers": {"a": {"enabled": true, "command": "x", "holdline": {"lazy": true}}}}`,
		},
		"replace": {
			full, func(path string) error {
				return AddServer(t.Context(), path, "web", []byte(`{"command": "x"}`), true)
			},
			strings.Replace(full, `{"url": "https://x"}`, "{\n            \"command\": \"x\"\n        }", 1),
		},
	} {
		if got := edited(t, x.in, x.edit); got != x.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, x.want)
		}
	}
	if got := edited(t, full, enables(t, "files", false), enables(t, "files", true), adds(t, "n", `{"command": "x"}`),
		removes(t, "n")); got != full {
		t.Errorf("there and back:\n%s", got)
	}
}

// TestEditRefuses checks that an edit that is not possible, or that would leave an invalid
// file, is refused with the reason, and leaves the file as it is.
func TestEditRefuses(t *testing.T) {
	const text = `{"mcpServers": {"a": {"command": "x"}}}`
	path := filepath.Join(t.TempDir(), "config.json")
	for _, x := range []struct {
		text string
		edit func(string) error
		want string
	}{
		{text, adds(t, "a", `{"command": "y"}`), "server a is configured already"},
		{text, adds(t, "b c", `{"command": "y"}`), "mcpServers.b c: the name wants 1 to 128 of A-Z a-z 0-9 _ . -"},
		{
			text,
			adds(t, "b", `{"command": "y", "url": "z"}`),
			"mcpServers.b.url: a server has a command or a url, not both\nmcpServers.b.url: wants a http or https address",
		},
		{text, adds(t, "b", `{"comand": "y"}`), `unknown key "mcpServers.b.comand" (did you mean command?)`},
		{text, adds(t, "b", `{"command": "y"`), "the server's JSON:1:16: "},
		{text, adds(t, "b", `{"command": "y"}, "c": {"command": "z"}`), "the server's JSON:1:17: "},
		{text, adds(t, "b", `"y"`), "the server's JSON wants an object"},
		{text, removes(t, "b"), "server b is not configured"},
		{text, enables(t, "b", true), "server b is not configured"},
		{`{"mcpServers": {"a": {}}}`, enables(t, "a", false), "server a: its entry is wrong"},
		{`{"mcpServers": {"a": {}}}`, adds(t, "b", `{}`), "mcpServers.b: wants a command or a url"},
		{
			`{"mcpServers": {"a": {}}, "no_key": 1}`,
			adds(t, "b", `{"command": "y"}`),
			path + `:1:27: unknown key "no_key"`,
		},
		{`{`, removes(t, "a"), path + ":1:2: "},
	} {
		if err := os.WriteFile(path, []byte(x.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := x.edit(path); err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("error %v\nwant %s", err, x.want)
		}
		if b, _ := os.ReadFile(path); string(b) != x.text {
			t.Errorf("the file was changed: %s", b)
		}
	}
	if err := adds(t, "a", `{"command": "y"}`)(path); err == nil || errors.Is(err, ErrServerExists) {
		t.Errorf("AddServer to a broken file = %v", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := adds(t, "a", `{"command": "y"}`)(path); !errors.Is(err, ErrServerExists) {
		t.Errorf("AddServer = %v, want ErrServerExists", err)
	}
	if err := removes(t, "b")(path); !errors.Is(err, config.ErrNoServer) {
		t.Errorf("RemoveServer = %v, want ErrNoServer", err)
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := removes(t, "a")(path); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a read-only file: %v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := removes(t, "a")(path); !errors.Is(err, config.ErrUnsafe) {
		t.Errorf("a file that others can write: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestEditKeepsLinksAndModes(t *testing.T) {
	dir := t.TempDir()
	dotfiles := filepath.Join(dir, "dotfiles", "holdline.json")
	link := filepath.Join(dir, "config", "holdline", "config.json")
	for _, d := range []string{dotfiles, link} {
		if err := os.MkdirAll(filepath.Dir(d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dotfiles, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dotfiles, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dotfiles, link); err != nil {
		t.Fatal(err)
	}
	if err := adds(t, "a", `{"command": "x"}`)(link); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
	info, err := os.Stat(dotfiles)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if c, err := config.Load(dotfiles); err != nil || len(c.Servers) != 1 {
		t.Errorf("the file behind the link: %v, %v", c, err)
	}
	// A new file and its directory are accessible to this user alone.
	fresh := filepath.Join(dir, "new", "config.json")
	if err := adds(t, "a", `{"command": "x"}`)(fresh); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{fresh: 0o600, filepath.Dir(fresh): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
	}
	nowhere := filepath.Join(dir, "nowhere")
	if err := os.Symlink(filepath.Join(dir, "gone"), nowhere); err != nil {
		t.Fatal(err)
	}
	if err := adds(t, "a", `{"command": "x"}`)(nowhere); err == nil || !strings.Contains(err.Error(), "leads nowhere") {
		t.Errorf("a link to nothing: %v", err)
	}
}

// TestEditAtOnce checks that of concurrent edits none is lost.
func TestEditAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := adds(t, fmt.Sprint("s", i), `{"command": "x"}`)(path); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if c, err := config.Load(path); err != nil || len(c.Servers) != 20 {
		t.Errorf("%d servers, %v", len(c.Servers), err)
	}
	// An edit that cannot get the lock ends with its context, and says so.
	f, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	boom := errors.New("boom")
	cancel(boom)
	if err := RemoveServer(ctx, path, "s1"); !errors.Is(err, boom) {
		t.Errorf("RemoveServer = %v, want the cause of its context", err)
	}
}

// comments returns the letters of all comments of a file, sorted, because the syntax tree
// does not keep the comments in the order of the text.
func comments(t *testing.T, data []byte) string {
	t.Helper()
	v, err := hujson.Parse(jsonedit.EndLine(data))
	if err != nil { // a file of comments alone is a valid configuration
		v, err = hujson.Parse(append(slices.Clone(data), "\n{}"...))
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for v := range v.All() {
		extras := []hujson.Extra{v.BeforeExtra, v.AfterExtra}
		switch c := v.Value.(type) {
		case *hujson.Object:
			extras = append(extras, c.AfterExtra)
		case *hujson.Array:
			extras = append(extras, c.AfterExtra)
		}
		for _, e := range extras {
			out = append(out, bytes.Join(bytes.Fields(e), nil)...)
		}
	}
	slices.Sort(out)
	return string(out)
}

// FuzzEdit checks that adding and removing a server, or switching one off and on, leaves
// every valid file with the same meaning and all its comments.
func FuzzEdit(f *testing.F) {
	for _, s := range []string{
		"", "{}", "{/**/}", "{// x\n}", "//0", `{"mcpServers": {}}`,
		"{\"mcpServers\":{\"a\":{\"command\":\"x\"}/*1*/,/*2*/}/*3*/,//4\n}",
		"{\"mcpServers\":{\"a\":{\"command\":\"x\"}//1\n,//2\n\"b\"/*3*/:/*4*/{\"command\":\"x\"}/*5*/}}",
		"\t{\n\r\n\"log\"\n:{}}\n//x",
		"{\"mcpServers\":{\"a\":{\"enabled\":true,\"command\":\"x\",\"holdline\":{\"disabled\":false}}}}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before, err := config.Parse("c", data)
		if err != nil || len(data) > 4096 {
			return
		}
		if _, taken := before.Servers["fuzz"]; taken {
			return
		}
		x, err := jsonedit.Parse("c", data)
		if err != nil {
			t.Fatal(err)
		}
		words := ""
		if len(bytes.TrimSpace(data)) > 0 {
			words = comments(t, data)
		}
		if err := x.Set(`{"command": "x"}`, serversKey, "fuzz"); err != nil {
			t.Fatal(err)
		}
		with := x.Bytes()
		got, err := config.Parse("c", with)
		if err != nil || got.Servers["fuzz"].Command != "x" || len(got.Servers) != len(before.Servers)+1 {
			t.Fatalf("added to %q: %q: %v", data, with, err)
		}
		if w := comments(t, with); w != words {
			t.Errorf("added to %q: comments %q, were %q", data, w, words)
		}
		x.Remove(serversKey, "fuzz")
		without := x.Bytes()
		got, err = config.Parse("c", without)
		if err != nil {
			t.Fatalf("removed from %q: %q: %v", with, without, err)
		}
		got.Servers, before.Servers = nonNil(got.Servers), nonNil(before.Servers)
		if !got.Equal(before) {
			t.Errorf("removed from %q: %q", with, without)
		}
		for name := range before.Servers {
			on := before
			s, _ := on.Server(name)
			for _, want := range []bool{!s.Enabled, s.Enabled} {
				if err := enable(x, name, want); err != nil {
					t.Fatal(err)
				}
				got, err := config.Parse("c", x.Bytes())
				if err != nil {
					t.Fatalf("switched %q: %q: %v", name, x.Bytes(), err)
				}
				if s, _ := got.Server(name); s.Enabled != want {
					t.Fatalf("switched %q to %v: %q", name, want, x.Bytes())
				}
			}
		}
		for name := range before.Servers {
			x.Remove(serversKey, name)
			if _, err := config.Parse("c", x.Bytes()); err != nil {
				t.Fatalf("removed %q: %q: %v", name, x.Bytes(), err)
			}
		}
	})
}

func nonNil(m map[string]config.Server) map[string]config.Server {
	if m == nil {
		return map[string]config.Server{}
	}
	return m
}

// TestOnlyComments checks that a file with nothing but comments is an empty configuration,
// and keeps its comments when a server is added.
func TestOnlyComments(t *testing.T) {
	for _, text := range []string{
		"// nothing", "// nothing\n", "  // a\n\n/* \"b\": { */ // c\n", "/**/", "// {\"no\": such key}\n// x",
	} {
		c, err := config.Parse("c", []byte(text))
		if err != nil || !c.Equal(config.Default()) {
			t.Errorf("Parse(%q) = %v, %v, want the defaults", text, c, err)
		}
		got := edited(t, text, adds(t, "a", `{"command": "x"}`))
		if _, err := config.Parse("c", []byte(got)); err != nil ||
			!strings.HasPrefix(got, strings.TrimSuffix(text, "\n")+"\n{") || !strings.Contains(got, `"command": "x"`) {
			t.Errorf("%q with a server is %q, %v", text, got, err)
		}
		if got = edited(t, got, removes(t, "a")); !strings.HasPrefix(got, text) {
			t.Errorf("%q without it again is %q", text, got)
		}
	}
	for _, text := range []string{"/* open", "/", "// a\n1", "/*/"} {
		if c, err := config.Parse("c", []byte(text)); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", text, c)
		}
	}
}

// TestSetKey checks which texts each type of value takes, that a wrong one leaves the file as
// it is, and that a setting removed is a setting that was never made.
func TestSetKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c")
	const before = `{
  // ours
  "mcpServers": {"a": {"command": "x"}}
}
`
	for _, x := range []struct{ key, value, want string }{
		{"consult.timeout", "30m", `"30m"`},
		{"consult.web", "false", "false"},
		{"consult.max_usd", "1.5", "1.5"},
		{"consult.roots", "/a, /b", `"/b"`},
		{"consult.roots", `["/a,b"]`, `"/a,b"`},
		{"logins.ports", "28123, 28124", "28124"},
		{"logins.ports", "[28123]", "28123"},
		{"logins.ports", "many", ""},
		{"log.level", "debug", `"debug"`},
		{"notifications", "true", `"notifications": true`},
		{"notifications", "servers, tools", `"tools"`},
		{"notifications", "weather", ""},
		{"mcpServers.a.holdline.contract", "convergent", `"convergent"`},
		{"mcpServers.a.holdline.contract", `{"r": "never_replay"}`, `"never_replay"`},
		{"mcpServers.a.enabled", "false", "false"},
		{"mcpServers.a.env.ADDRESS", "http://x/?a=1&b=<2>", `"http://x/?a=1&b=<2>"`},
		{"identities.i.token", "t", `"t"`},
		{"identities.i", `{"deny": ["x"]}`, `"x"`},
		{"consult.timeout", "1x", ""},
		{"consult.web", "maybe", ""},
		{"consult.max_turns", "many", ""},
		{"consult.max_turns", "-1", ""},
		{"consult.engine", "other", ""},
		{"consult", "x", ""},
		{"mcpServers.b.command", "x", ""},
	} {
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := config.ParseKey(x.key)
		if err != nil {
			t.Fatal(err)
		}
		err = SetKey(t.Context(), path, k, x.value)
		after, rerr := os.ReadFile(path)
		if rerr != nil {
			t.Fatal(rerr)
		}
		switch {
		case x.want == "" && (err == nil || string(after) != before || strings.Contains(err.Error(), path)):
			t.Errorf("%s = %s: %v\n%s", x.key, x.value, err, after)
		case x.want == "":
		case err != nil || !strings.Contains(string(after), x.want) || !strings.Contains(string(after), "// ours"):
			t.Errorf("%s = %s: %v\n%s", x.key, x.value, err, after)
		default:
			had, err := UnsetKey(t.Context(), path, k)
			if again, _ := UnsetKey(t.Context(), path, k); !had || err != nil || again {
				t.Errorf("unset %s: %v, %v, again %v", x.key, had, err, again)
			}
		}
	}
}
