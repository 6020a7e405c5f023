package setupcmd

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/importer"
)

// TestLeftIsNamed checks that what an undo has left is named even if the daemon cannot be reached.
func TestLeftIsNamed(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "socket")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.Flags().String("socket", socket, "")
	cmd.SetContext(ctx)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	proc := &cmdenv.Process{Getenv: func(string) string { return "" }}
	done := importer.Done{Files: []string{"/written"}, Left: []importer.Left{{Path: "/left", Key: "a", Why: "changed"}}}
	err = finishImport(cmd, proc, nil, filepath.Join(dir, "config.json"), done)
	if err == nil || !strings.Contains(err.Error(), "daemon") ||
		!strings.Contains(out.String(), "left /left a: changed") {
		t.Errorf("%v, printed %q", err, out.String())
	}
}

// TestImport_ComparesByTheEnvironmentOfServers checks that import takes an entry with a reference and one with a value for
// two servers if the reference has that value in this shell alone: servers do not get the variables of the shell.
func TestImport_ComparesByTheEnvironmentOfServers(t *testing.T) {
	home := t.TempDir()
	put := func(path, text string, mode os.FileMode) {
		t.Helper()
		path = filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	put("server", `#!/bin/sh
read -r discover; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
read -r begin
echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}}'
read -r initialized; read -r tools; echo '{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"a"}]}}'
read -r end
`, 0o700)
	entry := func(level string) string {
		return `{"mcpServers": {"a": {"command": "` + home + `/server", "env": {"LEVEL": "` + level + `"}}}}`
	}
	put(".claude.json", entry("${OF_THIS_SHELL:-low}"), 0o600)
	put(".cursor/mcp.json", entry("high"), 0o600)
	environ := map[string]string{"HOME": home, "SHELL": "/bin/sh", "XDG_RUNTIME_DIR": home, "OF_THIS_SHELL": "high"}
	proc := &cmdenv.Process{
		Getenv: func(name string) string { return environ[name] },
		Environ: func() (list []string) {
			for name, value := range environ {
				list = append(list, name+"="+value)
			}
			return list
		},
	}
	o := ImportOptions{from: []string{"claude", "cursor"}}
	look, err := ClientOptions(proc, &o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := &cobra.Command{}
	var errs bytes.Buffer
	cmd.SetErr(&errs)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd.SetContext(ctx)
	plan, _, err := lookAtClients(cmd, proc, &o, look, "", true)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "a-cursor"}; !slices.Equal(plan.Servers, want) {
		t.Errorf("servers %q, want %q; %s: %s", plan.Servers, want, plan.Files[0].Servers[0].Why, errs.String())
	}
}
