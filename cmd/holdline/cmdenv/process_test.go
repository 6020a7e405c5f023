package cmdenv

import (
	"path/filepath"
	"testing"
)

// TestConfigPath checks which file is the configuration, and that a ~/ which no shell has replaced
// is the home directory.
func TestConfigPath(t *testing.T) {
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flag, variable, home, want string }{
		{"", "", "/h", "/h/.config/holdline/config.json"},
		{"", "/v", "/h", "/v"},
		{"f", "/v", "/h", here + "/f"},
		{"~/f", "", "/h", "/h/f"},
		{"", "~/v", "/h", "/h/v"},
		{"~/f", "", "", here + "/~/f"},
		{"~f", "", "/h", here + "/~f"},
	} {
		env := map[string]string{"HOLDLINE_CONFIG": c.variable, "HOME": c.home}
		if got, err := ConfigPath(c.flag, func(name string) string { return env[name] }); got != c.want || err != nil {
			t.Errorf("flag %q, variable %q: %q, %v, want %q", c.flag, c.variable, got, err, c.want)
		}
	}
}
