package launch

import (
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/plural"
	"holdline/daemon/redact"
)

// TestEntryUnchanged_KeyIsThatOfEarlierBuilds checks the keys of entries against those that an
// earlier build has written down: if one of them changes, the next upgrade restarts each such
// server, and ends its calls. A new key of the configuration must not change them; if it is one
// that a process depends on, it is a field of keyed whose zero value is the default.
func TestEntryUnchanged_KeyIsThatOfEarlierBuilds(t *testing.T) {
	for _, c := range []struct{ what, entry, want string }{
		{"a command", `{"command": "srv", "args": ["-v", ""]}`, "e13aa25bd51c7024"},
		{
			"the same, with defaults",
			`{"command": "srv", "args": ["-v", ""], "env": {}, "holdline": {"inherit_env": "core", "confine": "off"}}`,
			"e13aa25bd51c7024",
		},
		{
			"an environment",
			`{"command": "srv", "env": {"A": "", "B": "${cmd:b}"}, "cwd": "/d",
				"holdline": {"inherit_env": "all", "env_file": "/e"}}`,
			"e4402c35badf63c4",
		},
		{
			"confined", `{"command": "srv", "holdline": {"confine": "read", "write": ["/tmp"], "network": [443]}}`,
			"fd889753fa0d43e1",
		},
		{"limits", `{"command": "srv", "holdline": {"limits": {"memory": "1GiB"}}}`, "ec169a456a00afe3"},
		{"an address", `{"url": "https://a/mcp", "headers": {"X": "y"}}`, "ee4115fcb867ca29"},
		{
			"with a login",
			`{"url": "https://a/mcp", "oauth": {"clientId": "c", "clientSecret": "s", "scopes": ["r"], "resource": ""}}`,
			"60372303a609165f",
		},
		{"on another machine", `{"command": "srv", "holdline": {"host": "h"}}`, "79e02761512a56f6"},
	} {
		key := keyOf(t, c.entry)
		if key != c.want {
			t.Errorf("%s: the key is %s, and that of earlier builds %s", c.what, key, c.want)
		}
	}
}

// keyOf returns the key of an entry.
func keyOf(t *testing.T, entry string) string {
	t.Helper()
	cfg, err := config.Parse("c", []byte(`{"mcpServers": {"s": `+entry+`}, "commands": {"b": {"command": ["pass", "b"]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := cfg.Server("s")
	return serverKey(&s, []string{"keyring"})
}

// TestNextBuildHasMoreKeys_HashStays checks that a key of the configuration that an entry does not
// set, at any depth and place, changes no hash, and that each thing that it does set changes it.
func TestNextBuildHasMoreKeys_HashStays(t *testing.T) {
	type oauth struct {
		ClientID string        `json:"clientId"`
		Secret   redact.Secret `json:"clientSecret"`
	}
	type now struct {
		Command string            `json:"command"`
		Env     map[string]string `json:"env"`
		OAuth   oauth             `json:"oauth"`
	}
	type laterOAuth struct {
		Fresh    *string       `json:"fresh"`
		Secret   redact.Secret `json:"clientSecret"`
		ClientID string        `json:"clientId"`
		More     []string      `json:"more"`
	}
	type later struct {
		Added   bool              `json:"added"`
		OAuth   laterOAuth        `json:"oauth"`
		Env     map[string]string `json:"env"`
		Size    plural.Size       `json:"size"`
		Command string            `json:"command"`
		Table   map[string]string `json:"table"`
	}
	is := now{Command: "srv", Env: map[string]string{"A": ""}, OAuth: oauth{"c", "s"}}
	next := later{Command: "srv", Env: map[string]string{"A": ""}, OAuth: laterOAuth{ClientID: "c", Secret: "s"}}
	want := hashSet(is)
	if got := hashSet(next); got != want {
		t.Errorf("the next build hashes the same entry as %s, this one as %s", got, want)
	}
	empty := ""
	for what, change := range map[string]func(*later){
		"a command":            func(l *later) { l.Command = "other" },
		"a variable":           func(l *later) { l.Env = map[string]string{"A": "", "B": ""} },
		"no variable":          func(l *later) { l.Env = nil },
		"another secret":       func(l *later) { l.OAuth.Secret = "t" },
		"a new key":            func(l *later) { l.Added = true },
		"a new key that is ''": func(l *later) { l.OAuth.Fresh = &empty },
		"a new list":           func(l *later) { l.OAuth.More = []string{""} },
	} {
		changed := next
		change(&changed)
		if hashSet(changed) == want {
			t.Errorf("%s does not change the hash", what)
		}
	}
}
