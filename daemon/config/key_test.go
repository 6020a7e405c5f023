package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestKeysAreParsed checks that each key of the table is one that [ParseKey] takes and whose
// default [Config.Value] has, and that names with dots in them can be named.
func TestKeysAreParsed(t *testing.T) {
	c, err := Parse("c", []byte(`{"mcpServers": {"a.b": {"command": "x"}}, "identities": {"i": {}}}`))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, k := range c.Keys() {
		got, err := ParseKey(k.Key.String())
		if err != nil || !reflect.DeepEqual(got, k.Key) {
			t.Errorf("ParseKey(%s) = %q, %v", k.Key, got, err)
		}
		if _, known := c.Value(k.Key); !known {
			t.Errorf("%s has no value", k.Key)
		}
		if k.Key.String() == `mcpServers."a.b".holdline.scope` || k.Key.String() == "identities.i.budget.calls" {
			seen++
		}
	}
	if seen != 2 {
		t.Errorf("%d of 2 keys with names are known", seen)
	}
	for text, want := range map[string]string{
		"consult.timout": "did you mean consult.timeout?", "consul": "did you mean consult?",
		"consult.timeout.x": "has no keys below it", `mcpServers."a"b`: "a dot is missing", "": "there is no key",
	} {
		if _, err := ParseKey(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseKey(%q): %v, want %q", text, err, want)
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
		k, err := ParseKey(x.key)
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

// TestValueHidesSecrets checks that a value has no secret of the file, whether its key is that
// of a secret or of anything above one, and that nothing else is hidden from it.
func TestValueHidesSecrets(t *testing.T) {
	c, err := Parse("c", []byte(`{
		"mcpServers": {
			"memory": {
				"command": "m",
				"args": ["--api-key", "sk-ARGsecret1", "--api-key=ctx7sk-secret2", "--root", "/kept"],
				"env": {"PLAIN": "secret3"}
			},
			"weather": {"url": "http://h/mcp?api_key=secret4&city=kept", "headers": {"X": "secret5"}}
		},
		"identities": {"i": {"token": "secret6"}},
		"consult": {"env": {"A": "secret7"}, "codex_config": ["model_providers.x.api_key=secret8"]}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "mcpServers", "mcpServers.memory", "mcpServers.memory.args", "mcpServers.memory.env",
		"mcpServers.memory.env.PLAIN", "mcpServers.weather", "mcpServers.weather.url",
		"mcpServers.weather.headers", "identities", "identities.i", "identities.i.token", "consult",
		"consult.env", "consult.codex_config",
	} {
		var k Key // of the whole file
		if text != "" {
			if k, err = ParseKey(text); err != nil {
				t.Fatal(err)
			}
		}
		value, known := c.Value(k)
		shown, err := json.Marshal(value)
		if err != nil || !known || strings.Contains(string(shown), "secret") ||
			!strings.Contains(string(shown), "***") {
			t.Errorf("the value of %q: %s, known %v, %v", text, shown, known, err)
		}
		if text == "mcpServers" && !strings.Contains(string(shown), "/kept") {
			t.Errorf("an argument that is no secret is hidden: %s", shown)
		}
	}
	if c.Servers["memory"].Args[1] != "sk-ARGsecret1" || c.Consult.CodexConfig[0] != "model_providers.x.api_key=secret8" {
		t.Error("the configuration itself is changed")
	}
}
