package resolve

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/config/expand"
)

func parsed(t *testing.T, servers string) config.Config {
	t.Helper()
	c, err := config.Parse("c", []byte(`{"mcpServers": {`+servers+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestProcess checks that variables are expanded from their sources in order, and which
// values count as secrets.
func TestProcess(t *testing.T) {
	s, _ := parsed(t, `"a": {"command": "${BIN:-/opt/x}", "args": ["--root", "${ROOT}", "$${kept}"], "cwd": "${SUB}",
		"env": {"TOKEN": "${TOKEN}", "URL": "https://${TOKEN}@x", "SHORT": "1234567", "SAME": "from-env-file",
			"MAYBE": "${MAYBE:-}", "EMPTY": "", "OTHERS": "${OTHER:-}"},
		"holdline": {"inherit_env": "core"}}`).Server("a")
	around := Around{
		Environ:   []string{"PATH=/bin", "TOKEN=from-environ", "ROOT=/srv", "OTHER=x"},
		Variables: []string{"TOKEN=from-variables", "SUB=sub"},
		EnvFile:   []string{"TOKEN=from-env-file"},
		Home:      "/home/u", Root: "/project",
	}
	got, err := around.Process(s)
	want := Process{
		Command: "/opt/x", Args: []string{"--root", "/srv", "${kept}"}, Dir: "/project/sub",
		Env: []string{
			"EMPTY=", "OTHERS=x", "PATH=/bin", "SAME=from-env-file", "SHORT=1234567", "TOKEN=from-env-file",
			"URL=https://from-env-file@x",
		},
		Secrets: []string{"https://from-env-file@x", "from-env-file"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Process:\n got %#v, %v\nwant %#v", got, err, want)
	}

	around.EnvFile, around.Variables = nil, []string{"SUB=sub"}
	if p, err := around.Process(s); err != nil || !slices.Contains(p.Env, "TOKEN=from-environ") {
		t.Errorf("another credential: %q, %v", p.Env, err)
	}
	around.Root = ""
	if p, _ := around.Process(s); p.Dir != "/home/u/sub" {
		t.Errorf("without a project: %s", p.Dir)
	}
	around.Environ = []string{"ROOT=/srv"}
	_, err = around.Process(s)
	if unset, ok := errors.AsType[*expand.UnsetError](err); !ok || unset.Name != "TOKEN" ||
		!strings.HasPrefix(err.Error(), "mcpServers.a.env.TOKEN: variable TOKEN is not set") {
		t.Errorf("a missing variable: %v", err)
	}
	around.Environ = nil
	if _, err := around.Process(s); err == nil ||
		!strings.HasPrefix(err.Error(), "mcpServers.a.args[1]: variable ROOT") {
		t.Errorf("two missing variables, the first must be named: %v", err)
	}
	for _, bin := range []string{"", "rel/ative"} {
		s := config.Settings{Name: "a", Command: "${BIN}"}
		if p, err := (Around{Environ: []string{"BIN=" + bin}}).Process(s); err == nil {
			t.Errorf("command %q: %#v", bin, p)
		}
	}
	s = config.Settings{Name: "a", Command: "x", Args: []string{"${A}"}}
	if p, err := (Around{Environ: []string{"A=\x00"}}).Process(s); err == nil {
		t.Errorf("a NUL character: %#v", p)
	}
}

// TestProcess_ArgumentNamesVariableOfItsOwnEnv_IsReplaced checks the form of entries that pass a header as an
// argument: its variable is the entry's own, in front of all others, and a secret by its name.
func TestProcess_ArgumentNamesVariableOfItsOwnEnv_IsReplaced(t *testing.T) {
	s, _ := parsed(t, `"a": {"command": "npx", "args": ["--header", "Authorization:${AUTH_TOKEN}", "${PATH}", "${NONE:-}"],
		"env": {"AUTH_TOKEN": "Bearer abc", "PATH": "${PATH}:/more", "NONE": "${NONE:-}"}}`).Server("a")
	p, err := Around{Environ: []string{"PATH=/bin", "AUTH_TOKEN=other"}, Home: "/h"}.Process(s)
	if want := []string{"--header", "Authorization:Bearer abc", "/bin:/more", ""}; err != nil ||
		!slices.Equal(p.Args, want) || !slices.Contains(p.Secrets, "Bearer abc") {
		t.Errorf("args %q, secrets %q, %v, want %q", p.Args, p.Secrets, err, want)
	}
	far, _ := parsed(t, `"a": {"url": "https://${HOST}/mcp", "headers": {"X": "${KEY}"},
		"env": {"HOST": "a.example", "KEY": "abcdefgh"}}`).Server("a")
	if got, err := (Around{}).Address(far); err != nil || got.URL != "https://a.example/mcp" || got.Headers["X"] != "abcdefgh" {
		t.Errorf("an address: %+v, %v", got, err)
	}
}

// TestAddress checks that variables in addresses and headers are expanded, and that an
// invalid result is refused.
func TestAddress(t *testing.T) {
	s, _ := parsed(t,
		`"a": {"url": "https://${HOST:-example.com}/mcp", "headers": {
			"Authorization": "Bearer ${TOKEN}", "X": "y", "X-Workspace": "a common phrase"}}`).
		Server("a")
	got, err := Around{Variables: []string{"TOKEN=0123456789"}}.Address(s)
	want := Address{
		URL: "https://example.com/mcp",
		Headers: map[string]string{
			"Authorization": "Bearer 0123456789", "X": "y", "X-Workspace": "a common phrase",
		},
		Secrets: []string{"Bearer 0123456789", "a common phrase", "0123456789"},
		Sent:    []string{"Bearer 0123456789", "0123456789"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Address:\n got %#v, %v\nwant %#v", got, err, want)
	}
	for _, bad := range []string{"HOST=a b", "TOKEN=x\r\nY: z"} {
		if got, err := (Around{EnvFile: []string{bad}, Variables: []string{"TOKEN=t"}}).Address(s); err == nil {
			t.Errorf("%q: %#v", bad, got)
		}
	}
	if _, err := (Around{}).Address(s); err == nil ||
		!strings.HasPrefix(err.Error(), "mcpServers.a.headers.Authorization: variable TOKEN") {
		t.Errorf("a missing variable: %v", err)
	}
}

// TestCommandValues checks that the values of commands come into env and headers, are secrets, and
// that their errors name the key. Without Run no command is run.
func TestCommandValues(t *testing.T) {
	c, err := config.Parse("c", []byte(`{
		"commands": {"work": {"command": ["op", "read", "x"]}},
		"mcpServers": {
			"a": {"command": "x", "env": {"TOKEN": {"command": ["pass", "show"]}, "AUTH": "Bearer ${cmd:work}", "N": "1"}},
			"b": {"url": "https://x/mcp", "headers": {"Authorization": "Bearer ${cmd:work}"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := c.Server("a")
	b, _ := c.Server("b")
	run := func(argv []string) (string, error) { return "out-" + strings.Join(argv, "-"), nil }
	p, err := Around{Home: "/", Root: "/", Run: run}.Process(a)
	for _, kv := range []string{"TOKEN=out-pass-show", "AUTH=Bearer out-op-read-x", "N=1"} {
		if !slices.Contains(p.Env, kv) {
			t.Errorf("the environment is %q, %v, want %s", p.Env, err, kv)
		}
	}
	if !slices.Contains(p.Secrets, "out-pass-show") || !slices.Contains(p.Secrets, "out-op-read-x") {
		t.Errorf("the secrets are %q", p.Secrets)
	}
	at, err := Around{Run: run}.Address(b)
	if at.Headers["Authorization"] != "Bearer out-op-read-x" || !slices.Contains(at.Secrets, "out-op-read-x") {
		t.Errorf("the address is %+v, %v", at, err)
	}
	locked := errors.New("locked")
	fails := func([]string) (string, error) { return "", locked }
	if _, err = (Around{Home: "/", Run: fails}).Process(a); !errors.Is(err, locked) ||
		!strings.HasPrefix(err.Error(), "mcpServers.a.env.AUTH: ") {
		t.Errorf("a command that fails: %v", err)
	}
	if _, err = (Around{Home: "/"}).Process(a); err != nil || (Around{Home: "/"}).Unset(a) != nil {
		t.Errorf("without running commands: %v, unset %q", err, Around{Home: "/"}.Unset(a))
	}
	uses := a.CommandUses()
	if len(uses) != 2 || uses[0].Key != "env.AUTH" || uses[1].Key != "env.TOKEN" || uses[1].Shown() != "pass show" {
		t.Errorf("the uses are %+v", uses)
	}
}

// TestOAuthSpellings checks that the settings have one spelling of what a file may spell in
// several ways.
func TestOAuthSpellings(t *testing.T) {
	const address = `"type": "http", "url": "https://x/mcp"`
	c := parsed(t, `
		"a": {`+address+`, "oauth": {"clientId": "i", "clientSecret": "${S}", "callbackPort": 3118, "scopes": ["r", "w"]}},
		"b": {`+address+`, "oauth": {"client_id": "i", "client_secret": "${S}", "scope": "r w", "resource": "",
			"redirectUri": "http://localhost:3118/callback"}}`)
	want := config.OAuth{
		ClientID: "i", ClientSecret: "hunter2hunter2", RedirectURI: "http://localhost:3118/callback",
		Scopes: []string{"r", "w"},
	}
	for name, resource := range map[string]*string{"a": nil, "b": new("")} {
		s, _ := c.Server(name)
		got, err := Around{Environ: []string{"S=hunter2hunter2"}}.Client(s)
		want.Resource = resource
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %#v, want %#v", name, err, got, want)
		}
		if _, err := (Around{}).Client(s); err == nil || !strings.Contains(err.Error(), "mcpServers."+name+".oauth.clientSecret") {
			t.Errorf("%s without its variable: %v", name, err)
		}
	}
}

// TestThere checks what goes to the host of a server: its settings as they are in the file, and
// what commands print, so that it is expanded to itself.
func TestThere(t *testing.T) {
	c := parsed(t, `"a": {"command": "~/bin/x", "args": ["${HOME}"], "cwd": "~/src",
		"env": {"HERE": "${HOME}/x", "TOKEN": {"command": ["pass", "x"]}}, "env_file": "~/env",
		"holdline": {"host": "box", "host_window": "1h"}}`).WithHome("/home/me")
	s, _ := c.Server("a")
	run := func(argv []string) (string, error) { return "se${cret", nil }
	p, err := Around{Run: run}.There(s)
	if err != nil {
		t.Fatal(err)
	}
	if p.Command != "~/bin/x" || p.Dir != "~/src" || p.EnvFile != "~/env" || p.Args[0] != "${HOME}" || p.Host != "box" ||
		p.HostWindow.Hours() != 1 || !slices.Equal(p.Env, []string{"HERE=${HOME}/x", "TOKEN=se$${cret"}) {
		t.Errorf("There = %+v", p)
	}
	locked := errors.New("locked")
	if _, err := (Around{Run: func([]string) (string, error) { return "", locked }}).There(s); !errors.Is(err, locked) {
		t.Errorf("the command failed, and There says %v", err)
	}
}

// TestPathInAVariable_StaysReadable checks which variables of a server are hidden where they turn up: those that are
// secret by their names, by their looks or by where they come from, and no others.
func TestPathInAVariable_StaysReadable(t *testing.T) {
	s, _ := parsed(t, `"a": {"command": "x", "args": ["--token", "${GIVEN}"], "env": {
		"DATA_DIR": "/srv/data/shop", "MODE": "read-write", "KUBE": "${KUBE}", "REGION": "${REGION:-eu-west}",
		"API_KEY": "/srv/keys/one", "ODD": "a1B2c3D4e5", "NOTE": "${NOTE}", "GIVEN": "fifteen-words"}}`).Server("a")
	p, err := Around{Variables: []string{"KUBE=/home/u/.kube/config", "NOTE=a-word-from-elsewhere"}}.Process(s)
	slices.Sort(p.Secrets)
	want := []string{"/srv/keys/one", "a-word-from-elsewhere", "a1B2c3D4e5", "fifteen-words"} // REGION is too short
	if err != nil || !slices.Equal(p.Secrets, want) {
		t.Errorf("hidden are %q, %v, want %q", p.Secrets, err, want)
	}
}
