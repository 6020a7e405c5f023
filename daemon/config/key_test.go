package config

import (
	"encoding/json"
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

// TestReservedName checks that no server can have the name that stands for holdline's own
// tools.
func TestReservedName(t *testing.T) {
	if _, err := Parse("c", []byte(`{"mcpServers": {"holdline": {"command": "x"}}}`)); err == nil ||
		!strings.Contains(err.Error(), "name of holdline itself") {
		t.Errorf("Parse = %v", err)
	}
}
