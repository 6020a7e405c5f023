package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/redact"
)

const sample = `// what the daemon does
{
  "identities": {
    "codex": {"token": "s3cret-token", "allow": ["consult*"], "deny": ["x"], "budget": {"calls": 5}, "expose": "search"},
    "cursor": {}, /* anybody */
  },
  "limits": {"connections": 10, "in_flight": 2},
  "consult": {
    "claude_bin": "~/bin/claude", "model": "opus", "effort": "high",
    "max_concurrent": 2, "timeout": "20m", "wait": "0s", "max_turns": 7, "level": "shell",
    "roots": ["/srv", "~/src"], "web": false,
    "env": {"ANTHROPIC_API_KEY": "sk-very-secret"}, "env_file": "~/.env",
    "keep": {"count": 3, "age": "1h30m"},
  },
  "telemetry": {"paths": true, "max_bytes": 65536, "keep": 1},
  "log": {"level": "debug"},
  "mcpServers": {
    "files": {"command": "npx", "args": ["-y", "server"], "env": {"K": "v-secret-v"}, "cwd": "~",
      "holdline": {"scope": "shared", "lazy": false, "contract": "convergent", "timeout": "5m", "max_restarts": 0}},
    "web": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer h-secret"},
      "holdline": {"contract": {"get_*": "convergent", "*": "never_replay"}, "projects": ["~/p"]}},
  },
}
`

// TestParse checks that every key of a file is read.
func TestParse(t *testing.T) {
	got, err := Parse("config.json", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	zero := 0
	want := Config{
		Identities: map[string]Identity{
			"codex": {
				Token: "s3cret-token", Allow: []string{"consult*"}, Deny: []string{"x"}, Budget: Budget{Calls: 5},
				Expose: ExposeSearch,
			},
			"cursor": {},
		},
		Limits: Limits{Connections: 10, InFlight: 2},
		Consult: Consult{
			Engine: "claude", ClaudeBin: "~/bin/claude", Model: "opus", Effort: "high",
			MaxConcurrent: 2, Timeout: 20 * time.Minute, MaxTurns: 7, Level: "shell",
			Roots: []string{"/srv", "~/src"}, Env: map[string]redact.Secret{"ANTHROPIC_API_KEY": "sk-very-secret"},
			EnvFile: "~/.env", Keep: Keep{3, 90 * time.Minute}, Share: ShareProject,
		},
		Telemetry: Telemetry{Paths: true, MaxBytes: 65536, Keep: 1},
		Log:       Log{slog.LevelDebug},
		Servers: map[string]Server{
			"files": {
				Command: "npx", Args: []string{"-y", "server"}, Env: map[string]Variable{"K": {Text: "v-secret-v"}}, Cwd: "~",
				Holdline: Hosting{
					Scope: "shared", Contracts: Contracts{"*": "convergent"},
					Timeout: 5 * time.Minute, MaxRestarts: &zero,
				},
			},
			"web": {
				Type: "http", URL: "https://example.com/mcp",
				Headers: map[string]redact.Secret{"Authorization": "Bearer h-secret"},
				Holdline: Hosting{
					Contracts: Contracts{"get_*": "convergent", "*": "never_replay"}, Projects: []string{"~/p"},
				},
			},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Parse:\n got %#v\nwant %#v", got, want)
	}

	home := got.WithHome("/home/u")
	if home.Consult.ClaudeBin != "/home/u/bin/claude" || home.Consult.Roots[1] != "/home/u/src" ||
		home.Consult.EnvFile != "/home/u/.env" || home.Servers["files"].Cwd != "/home/u" ||
		home.Servers["web"].Holdline.Projects[0] != "/home/u/p" {
		t.Errorf("WithHome = %#v", home)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("WithHome changed the original")
	}
}

func TestParseOfNothingIsDefault(t *testing.T) {
	for _, in := range []string{"", "\n", "{}", "{/* nothing */}"} {
		if got, err := Parse("c", []byte(in)); err != nil || !reflect.DeepEqual(got, Default()) {
			t.Errorf("Parse(%q) = %#v, %v", in, got, err)
		}
	}
	d := &decoder{at: map[string]int{}}
	c := Default()
	if d.check(&c); d.err() != nil {
		t.Errorf("the default is not valid: %v", d.err())
	}
}

// TestParseRefuses checks the place and the text of the error for each kind of mistake.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{
			"{\n  \"consult\": {\n    \"max_concurent\": 3\n  }\n}",
			`c:3:5: unknown key "consult.max_concurent" (did you mean max_concurrent?)`,
		},
		{`{"nothing_like_it": 1}`, `c:1:2: unknown key "nothing_like_it"`},
		{"\ufeff" + `{"nothing_like_it": 1}`, `c:1:2: unknown key "nothing_like_it"`},
		{`{"servers": {"a": {"command": "x"}}}`, "c:1:2: servers: holdline has no such key: write mcpServers"},
		{`{"Consult": {}}`, `c:1:2: unknown key "Consult" (did you mean consult?)`}, // keys have exact case
		{`{"consult": {"web": true, "web": true}}`, `c:1:27: duplicate key "consult.web"`},
		{`{"identities": {"a": {}, "\u0061": {}}}`, `c:1:26: duplicate key "identities.a"`},
		{`{"consult": {"web": "yes"}}`, "c:1:21: consult.web: wants true or false, not a string"},
		{`{"consult": {"timeout": 30}}`, `c:1:25: consult.timeout: wants a duration such as "30s", not a number`},
		{`{"consult": {"timeout": "30"}}`, `c:1:25: consult.timeout: wants a duration such as "30s" or "15m"`},
		{`{"consult": {"timeout": "-3s"}}`, `c:1:25: consult.timeout: wants a duration such as "30s" or "15m"`},
		{`{"consult": {"timeout": "1ms"}}`, "c:1:25: consult.timeout: wants 1s to 24h0m0s"},
		{`{"consult": {"engine": "gpt"}}`, "c:1:24: consult.engine: wants one of " + strings.Join(builtIn, ", ")},
		{`{"consult": {"max_usd": 0}}`, "c:1:25: consult.max_usd: wants 0.01 to 10000"},
		{`{"consult": {"codex_bin": "bin/codex"}}`, "c:1:27: consult.codex_bin: wants a path that begins with / or ~/"},
		{
			`{"consult": {"codex_config": ["a=1", "--yolo"]}}`,
			"c:1:38: consult.codex_config[1]: wants key=value, as codex -c does",
		},
		{
			`{"identities": {"a": {"budget": {"consults_per_day": 0}}}}`,
			"c:1:54: identities.a.budget.consults_per_day: wants 1 to 1000000",
		},
		{
			`{"identities": {"a": {"budget": {"max_usd_per_day": -1}}}}`,
			"c:1:53: identities.a.budget.max_usd_per_day: wants 0.01 to 1e+06",
		},
		{`{"consult": {"max_concurrent": 0}}`, "c:1:32: consult.max_concurrent: wants 1 to 64"},
		{`{"consult": {"level": "write"}}`, `c:1:23: consult.level: wants one of read, shell`},
		{`{"consult": {"max_turns": 1.5}}`, "c:1:27: consult.max_turns: wants a whole number, not 1.5"},
		{`{"consult": {"model": null}}`, "c:1:23: consult.model: wants a string, not null"},
		{`{"consult": {"model": "--x"}}`, "c:1:23: consult.model: wants one word that does not begin with a dash"},
		{`{"consult": {"roots": "/x"}}`, "c:1:23: consult.roots: wants an array, not a string"},
		{`{"consult": {"roots": ["/x", "y"]}}`, "c:1:30: consult.roots[1]: wants a path that begins with / or ~/"},
		{
			`{"consult": {"claude_bin": "bin/claude"}}`,
			"c:1:28: consult.claude_bin: wants a path that begins with / or ~/",
		},
		{
			`{"consult": {"env": {"A=B": "x"}}}`,
			"c:1:22: consult.env.A=B: the name wants 1 to 128 characters without = or spaces",
		},
		{`{"consult": {"env": {"A": ["hunter2hunter2"]}}}`, "c:1:27: consult.env.A: wants a string, not an array"},
		{`{"consult": []}`, "c:1:13: consult: wants an object, not an array"},
		{`[]`, "c:1:1: the file: wants an object, not an array"},
		{`{"log": {"level": "loud"}}`, "c:1:19: log.level: wants one of debug, info, warn, error"},
		{
			`{"identities": {"a": {"token": ""}}}`,
			"c:1:32: identities.a.token: wants a string that is not empty and neither begins nor ends with a space",
		},
		{
			`{"identities": {"anonymous": {"token": "x"}}}`,
			"c:1:40: identities.anonymous.token: anonymous clients send no greeting, and so no token",
		},
		{
			`{"identities": {"": {}}}`,
			"c:1:17: identities.: the name wants 1 to 128 characters, none of them a control character",
		},
		{`{"identities": {"a": {"allow": ["["]}}}`, "c:1:33: identities.a.allow[0]: is no glob of tool names"},
		{`{"mcpServers": {"a": {}}}`, "c:1:22: mcpServers.a: wants a command or a url"},
		{
			`{"mcpServers": {"a b": {"command": "x"}}}`,
			"c:1:17: mcpServers.a b: the name wants 1 to 128 of A-Z a-z 0-9 _ . -",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "holdline": {"scope": "all"}}}}`,
			"c:1:61: mcpServers.a.holdline.scope: wants one of project, shared, session",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "holdline": {"contract": "often"}}}}`,
			"c:1:64: mcpServers.a.holdline.contract.*: wants one of convergent, never_replay",
		},
		{`{"mcpServers": {"a": {"url": "file:///x"}}}`, "c:1:30: mcpServers.a.url: wants a http or https address"},
		{
			`{"mcpServers": {"a__b": {"command": "x"}}}`,
			"c:1:17: mcpServers.a__b: the name must not have two underscores in a row, nor one at its end",
		},
		{
			`{"mcpServers": {"a_": {"command": "x"}}}`,
			"c:1:17: mcpServers.a_: the name must not have two underscores in a row, nor one at its end",
		},
		{`{"consult": {"keep": {"count": 0}}}`, "c:1:32: consult.keep.count: wants 1 to 100000"},
		{
			`{"mcpServers": {"a": {"command": "x", "url": "http://x"}}}`,
			"c:1:46: mcpServers.a.url: a server has a command or a url, not both",
		},
		{`{"mcpServers": {"a": {"type": "http"}}}`, "c:1:22: mcpServers.a: type http wants a url"},
		{
			`{"mcpServers": {"a": {"command": "bin/x"}}}`,
			"c:1:34: mcpServers.a.command: wants a path that begins with / or ~/",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "args": ["${input:key}"]}}}`,
			"c:1:48: mcpServers.a.args[0]: wants ${NAME}, ${NAME:-default} or ${cmd:NAME}; a plain ${ is written $${",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "env": {"K": "${"}}}}`,
			"c:1:52: mcpServers.a.env.K: wants ${NAME}, ${NAME:-default} or ${cmd:NAME}; a plain ${ is written $${",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "cwd": "${A:-${9}}"}}}`,
			"c:1:46: mcpServers.a.cwd: wants ${NAME}, ${NAME:-default} or ${cmd:NAME}; a plain ${ is written $${",
		},
		{
			`{"mcpServers": {"a": {"url": "http://x", "headers": {"K": "${x"}}}}`,
			"c:1:59: mcpServers.a.headers.K: wants ${NAME}, ${NAME:-default} or ${cmd:NAME}; a plain ${ is written $${",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "env": {"LD_PRELOAD": "/x.so"}}}}`,
			"c:1:47: mcpServers.a.env.LD_PRELOAD: is never given to a server",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "env": {"DYLD_X": "y"}}}}`,
			"c:1:47: mcpServers.a.env.DYLD_X: is never given to a server",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "env_file": "x"}}}`,
			"c:1:51: mcpServers.a.env_file: wants a path that begins with / or ~/",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "env_file": "/x", "holdline": {"env_file": "/y"}}}}`,
			"c:1:51: mcpServers.a.env_file: is also in the holdline object",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "enabled": true, "disabled": true}}}`,
			"c:1:50: mcpServers.a.enabled: is true, and disabled is, too",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "comand": 1}}}`,
			`c:1:39: unknown key "mcpServers.a.comand" (did you mean command?)`,
		},
		{
			`{"mcpServers": {"a": {"command": "x", "scope": "shared"}}}`,
			`c:1:39: mcpServers.a.scope: holdline has no such key: write "holdline": {"scope": ...}`,
		},
		{
			`{"mcpServers": {"a": {"httpUrl": "http://x"}}}`,
			"c:1:23: mcpServers.a.httpUrl: holdline has no such key: write url",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "timeout": "30s"}}}`,
			`c:1:39: mcpServers.a.timeout: holdline has no such key: write "holdline": {"timeout": ...}`,
		},
		{
			`{"mcpServers": {"a": {"command": "x", "excludeTools": ["rm"]}}}`,
			`c:1:39: mcpServers.a.excludeTools: holdline has no such key: write "holdline": {"deny": [...]}`,
		},
		{
			`{"mcpServers": {"a": {"command": "x", "holdline": {"timeout": "0s"}}}}`,
			"c:1:63: mcpServers.a.holdline.timeout: wants 1s to 168h0m0s",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "holdline": {"max_concurrent": 0}}}}`,
			"c:1:70: mcpServers.a.holdline.max_concurrent: wants 1 to 4096",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "holdline": {"circuit_threshold": 0}}}}`,
			"c:1:73: mcpServers.a.holdline.circuit_threshold: wants 1 to 1000",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "holdline": {"max_timeout": "4m"}}}}`,
			"c:1:67: mcpServers.a.holdline.max_timeout: is shorter than timeout, which is 5m0s",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "holdline": {"network": "none"}}}}`,
			"c:1:63: mcpServers.a.holdline.network: wants confine: read or project; a server that may change all files " +
				"can have another program do what it may not",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "holdline": {"confine": "read", "network": [0]}}}}`,
			"c:1:83: mcpServers.a.holdline.network[0]: wants 1 to 65535",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "holdline": {"confine": "read", "network": "any"}}}}`,
			`c:1:82: mcpServers.a.holdline.network: wants "none", or a list of TCP ports`,
		},
		{
			`{"mcpServers": {"a": {"command": "x", "holdline": {"confine": "project", "scope": "shared"}}}}`,
			"c:1:63: mcpServers.a.holdline.confine: a server of scope shared has no project; take read, and name " +
				"directories in write",
		},
		{
			`{"mcpServers": {"a": {"url": "http://x", "holdline": {"confine": "read"}}}}`,
			"c:1:66: mcpServers.a.holdline.confine: is for servers with a command: this one runs elsewhere",
		},
		{
			`{"mcpServers": {"a": {"command": "x", "holdline": {"allow": [""]}}}}`,
			"c:1:62: mcpServers.a.holdline.allow[0]: is no glob of tool names",
		},
		{`{"identities": {"a": {"budget": {"calls": 0}}}}`, "c:1:43: identities.a.budget.calls: wants 1 to 1000000000"},
		{`{"identities": {"a": {"expose": "some"}}}`, "c:1:33: identities.a.expose: wants one of all, search"},
		{
			`{"identities": {"anonymous": {"expose": "search"}}}`,
			"c:1:41: identities.anonymous.expose: anonymous clients send no greeting, and cannot use tools of hosted servers",
		},
		// Columns count characters, and lines are those of an editor.
		{"{\"log\": {\"ä\": 1}}", `c:1:10: unknown key "log.ä"`},
		{"{\"identities\": {\"äöü\": {}}, \"x\": 1}", `c:1:29: unknown key "x"`},
		{"{\n\t\"log\": {},\n\t\"log\" {}\n}", "c:3:8: invalid character '{' after object name"},
		{"{", "c:1:2: the file ends too early: a brace, a bracket or a quote is not closed"},
		{"{\"log\": \xff}", "c:1:9: is not valid UTF-8"},
		{strings.Repeat("[", 5000), "c:1:33: values nest more than 32 deep"},
		{`{"a": 1,` + "\n" + `"b": 2}`, "c:1:2: unknown key \"a\"\nc:2:1: unknown key \"b\""},
	} {
		_, err := Parse("c", []byte(c.in))
		if err == nil || err.Error() != c.want {
			t.Errorf("Parse(%.80s):\n got %v\nwant %s", c.in, err, c.want)
			continue
		}
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("Parse(%.80s): the error is no *Error", c.in)
		}
	}
	if _, err := Parse("c", bytes.Repeat([]byte(" "), MaxFile+1)); err == nil {
		t.Error("Parse took a huge file")
	}
	many := `{"limits": {` + strings.Repeat(`"x": 1, `, 1000) + `}}`
	if _, err := Parse("c", []byte(many)); err == nil || strings.Count(err.Error(), "\n") != maxErrors-1 {
		t.Errorf("a thousand mistakes: %v", err)
	}
}

// TestLoad checks which files are accepted, by their permissions and kind. A missing file
// counts as the default configuration.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.json")
	if c, err := Load(path); err != nil || !reflect.DeepEqual(c, Default()) {
		t.Errorf("a missing file: %v, %v", c, err)
	}
	write := func(mode os.FileMode) {
		t.Helper()
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err) // it may be one that nobody but root can write to
		}
		if err := os.WriteFile(path, []byte(sample), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // regardless of the umask
			t.Fatal(err)
		}
	}
	for _, mode := range []os.FileMode{0o600, 0o644, 0o400} {
		write(mode)
		if c, err := Load(path); err != nil || c.Limits.Connections != 10 {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	for _, mode := range []os.FileMode{0o620, 0o602, 0o666} {
		write(mode)
		if _, err := Load(path); !errors.Is(err, ErrUnsafe) {
			t.Errorf("mode %o: %v, want ErrUnsafe", mode, err)
		}
	}
	write(0o600)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(link); err != nil {
		t.Errorf("a link to a good file: %v", err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{fifo, dir} {
		if _, err := Load(bad); !errors.Is(err, ErrUnsafe) {
			t.Errorf("Load(%s) = %v, want ErrUnsafe", bad, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := safe(path, info, os.Geteuid()+1); !errors.Is(err, ErrUnsafe) {
		t.Errorf("a file of another user: %v, want ErrUnsafe", err)
	}
	if err := os.WriteFile(path, []byte("{\n \"lock\": 1}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || err.Error() != path+`:2:2: unknown key "lock" (did you mean log?)` {
		t.Errorf("Load = %v", err)
	}
}

// TestEqual checks that two configurations that differ only in a secret are not equal.
func TestEqual(t *testing.T) {
	parse := func(s string) Config {
		c, err := Parse("c", []byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if a := parse(sample); !a.Equal(parse(sample)) || a.Equal(parse(strings.Replace(sample, "s3cret", "s4cret", 1))) {
		t.Error("Equal is wrong")
	}
}

// TestSecretsStayHidden checks that no common way of printing shows a secret.
func TestSecretsStayHidden(t *testing.T) {
	c, err := Parse("c", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, v := range []any{
		c, &c, c.Identities, c.Identities["codex"], c.Consult, c.Consult.Env, c.Servers, c.Servers["web"],
	} {
		fmt.Fprintf(&out, "%v %+v %#v %s\n", v, v, v, v)
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
		slog.New(slog.NewTextHandler(&out, nil)).Info("loaded", "config", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("loaded", "config", v)
	}
	for _, secret := range []string{"s3cret-token", "sk-very-secret", "v-secret-v", "h-secret"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s is shown in:\n%s", secret, out.String())
		}
	}
	if got := redact.Reveal(c.Consult.Env)["ANTHROPIC_API_KEY"]; got != "sk-very-secret" {
		t.Errorf("Reveal = %q", got)
	}
}

// FuzzParse checks that any bytes are either accepted or refused with a place, and that
// accepted values are within their limits.
func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	for _, s := range []string{
		``, `{}`, `//`, `/*`, `{"a":`, `[[[[`, `{"consult":{"env":{"a":"b",},},}`, "{\"\\ud800\": 1}",
		`{"mcpServers":{"a":{"command":"x"}}}`, `{"identities":{"a":{"token":"\u0000"}}}`,
		`{"limits":{"in_flight":1e2}}`, `{"log":{"level":"warn"}} //x`, "\ufeff{}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("c", data)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("Parse(%q): %v is no *Error", data, err)
			}
			return
		}
		if c.Limits.Connections < 1 || c.Consult.MaxConcurrent < 1 || c.Consult.Timeout < time.Second {
			t.Errorf("Parse(%q) = %#v", data, c)
		}
		_ = c.String()
	})
}
