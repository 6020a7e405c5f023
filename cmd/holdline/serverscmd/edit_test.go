package serverscmd

import (
	"errors"
	"path/filepath"
	"testing"

	"holdline/cmd/holdline/cmdenv"
)

// TestAddedEntry checks that the members of a new entry are in the usual order, its
// variables in that of the command line, and that no character is escaped without need.
func TestAddedEntry(t *testing.T) {
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		flags addOptions
		args  []string
		want  string // "" for a usage error
	}{
		"a command": {args: []string{"ls", "-l", "a&<b>"}, want: `{"command":"ls","args":["-l","a&<b>"]}`},
		"an address": {
			flags: addOptions{headers: []string{"Z: 1 ", "A:b:c"}, entry: entry{Type: "http"}},
			args:  []string{"https://x"},
			want:  `{"type":"http","url":"https://x","headers":{"Z":"1","A":"b:c"}}`,
		},
		"every flag": {
			flags: addOptions{
				env: []string{"Z=1", "A=<&>", "A="},
				entry: entry{
					Type: "stdio", Cwd: "sub", EnvFile: "~/f", Disabled: true,
					Hosting: hosting{
						Scope: "shared", Contract: "convergent", Allow: []string{"a*"}, Deny: []string{"b"},
						Projects: []string{"."}, Lazy: true,
					},
				},
			},
			args: []string{"x"},
			want: `{"type":"stdio","command":"x","env":{"Z":"1","A":"<&>","A":""},"cwd":"` + here +
				`/sub","env_file":"~/f",` +
				`"disabled":true,"holdline":{"scope":"shared","lazy":true,"contract":"convergent",` +
				`"allow":["a*"],"deny":["b"],"projects":["` + here + `"]}}`,
		},
		"JSON":              {flags: addOptions{json: `{"a": 1}`, replace: true}, want: `{"a": 1}`},
		"JSON and a flag":   {flags: addOptions{json: `{}`, entry: entry{Disabled: true}}},
		"JSON and a secret": {flags: addOptions{json: `{"url": "https://x"}`, secretEnv: "SECRET"}},
		"the home directory": {
			flags: addOptions{entry: entry{Cwd: "~"}}, args: []string{"x"}, want: `{"command":"x","cwd":"~"}`,
		},
		"nothing":                 {},
		"a variable without a =":  {flags: addOptions{env: []string{"A"}}, args: []string{"x"}},
		"a header without a name": {flags: addOptions{headers: []string{":b"}}, args: []string{"https://x"}},
		"a header of a command":   {flags: addOptions{headers: []string{"a:b"}}, args: []string{"x"}},
		"a variable of an address": {
			flags: addOptions{env: []string{"A=b"}}, args: []string{"http://x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tt.flags.object(tt.args)
			if string(got) != tt.want || tt.want != "" && err != nil ||
				tt.want == "" && !errors.Is(err, cmdenv.ErrUsage) {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}
