package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/programtest"
)

// TestServerRelativePath checks that no file of the project is run as a hosted server, or
// as a program that a hosted server starts by name, whichever PATH has a relative or empty
// element.
func TestServerRelativePath(t *testing.T) {
	t.Parallel()
	for _, element := range []string{"", ".", "sub"} {
		for _, from := range []string{"daemon", "server", "captured"} {
			for _, command := range []string{"planted", "starter"} {
				t.Run(fmt.Sprintf("%q of the %s runs %s", element, from, command), func(t *testing.T) {
					t.Parallel()
					p := newPlace(t)
					stolen := filepath.Join(p.dir, "stolen")
					planted := fmt.Sprintf("#!/bin/sh\necho \"$TOKEN\" >> %s\n", stolen)
					tools := filepath.Join(p.dir, "tools")
					if err := os.Mkdir(tools, 0o700); err != nil {
						t.Fatal(err)
					}
					for path, text := range map[string]string{
						filepath.Join(p.project, "planted"):     planted,
						filepath.Join(p.project, "sub/planted"): planted,
						filepath.Join(tools, "starter"):         "#!/bin/sh\nplanted\n",
					} {
						programtest.Write(t, path, text)
					}
					path := element + ":" + tools + ":/usr/bin:/bin:" + element
					env := map[string]any{"TOKEN": "secret"}
					switch from {
					case "daemon":
						p.env = append(without(p.env, "PATH"), "PATH="+path)
					case "server":
						env["PATH"] = path
					case "captured":
						dir := filepath.Join(p.dir, "home/.local/state/holdline")
						if err := os.MkdirAll(dir, 0o700); err != nil {
							t.Fatal(err)
						}
						if err := os.WriteFile(filepath.Join(dir, "path"), []byte(path+"\n"), 0o600); err != nil {
							t.Fatal(err)
						}
					}
					p.configure(map[string]any{"tools": map[string]any{"command": command, "env": env}})
					p.daemon()
					_, errs, code := p.run("", "servers", "start", "tools")
					if code == exitOK {
						t.Error("the server runs")
					}
					if command == "starter" && !strings.Contains(errs, "planted: ") {
						t.Errorf("the server that should not find the file of the project says: %s", errs)
					}
					if b, err := os.ReadFile(stolen); err == nil {
						t.Errorf("the file of the project ran with the token %q", b)
					}
				})
			}
		}
	}
}
