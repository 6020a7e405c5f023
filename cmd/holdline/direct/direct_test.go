package direct

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/config/resolve"
)

// undiscovered begins a script that plays a server: it knows no server/discover.
const undiscovered = `read -r discover; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'; `

// rooted plays a server that has one tool more if its client has a root, for which it asks.
const rooted = undiscovered + `read -r begin; list='{"name":"a"}'
echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}}'
read -r initialized; read -r tools
case $begin in *roots*)
	echo '{"jsonrpc":"2.0","id":"r","method":"roots/list"}'; read -r answer
	case $answer in *file:///a/project*) list="$list,{\"name\":\"b\"}";; esac
esac
echo '{"jsonrpc":"2.0","id":3,"result":{"tools":['"$list"']}}'`

// TestTryDeclaresRoots checks that a server which is tried lists the same tools as below the
// daemon, which has a root for the servers of a project and none for others.
func TestTryDeclaresRoots(t *testing.T) {
	t.Parallel()
	p := resolve.Process{Command: "/bin/sh", Args: []string{"-c", rooted}}
	for root, want := range map[string][]string{"": {"a"}, "/a/project": {"a", "b"}} {
		if got, err := ask(t.Context(), p, root, wanted{}, nil); err != nil || !slices.Equal(got.names, want) {
			t.Errorf("with the root %q: %q, %v, want %q", root, got.names, err, want)
		}
	}
}

// TestLastLineIsMasked checks that a secret longer than the shown part of a line is masked
// before the line is cut.
func TestLastLineIsMasked(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("s3cret", 10)
	words := &lastBytes{most: tryStderr}
	_, _ = words.Write([]byte("first\n" + strings.Repeat("x", maxLastLine-20) + secret + "\n"))
	if got := words.last([]string{secret}); strings.Contains(got, "s3cret") || !strings.HasPrefix(got, ": xxx") {
		t.Errorf("last line: %s", got)
	}
}

// TestTryThatIsCancelled checks that a program which may be renewing a login comes to its end
// although its trial was cancelled.
func TestTryThatIsCancelled(t *testing.T) {
	t.Parallel()
	finished := filepath.Join(t.TempDir(), "finished")
	p := resolve.Process{Command: "/bin/sh", Args: []string{
		"-c", `trap 'sleep 0.2; : >"$0"; exit' TERM; echo up >&2; sleep 60 >&- & wait`, finished,
	}, EndGrace: time.Minute}
	ctx, cancel := context.WithCancel(t.Context())
	begin := time.Now()
	if _, err := ask(ctx, p, "", wanted{}, func(string) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled trial: %v", err)
	}
	if _, err := os.Stat(finished); err != nil || time.Since(begin) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
}

// TestTryLeavesAProgramBehind checks that a trial ends although the server has started a program which
// has left its process group and keeps its stdout.
func TestTryLeavesAProgramBehind(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("needs setsid")
	}
	file := filepath.Join(t.TempDir(), "pid")
	p := resolve.Process{Command: "/bin/sh", Args: []string{
		"-c", `setsid sleep 60 2>&- & echo $! >"$0"` + "\n" + rooted, file,
	}}
	begin := time.Now()
	if got, err := ask(t.Context(), p, "", wanted{}, nil); err != nil || !slices.Equal(got.names, []string{"a"}) {
		t.Errorf("%q, %v", got.names, err)
	}
	if d := time.Since(begin); d > 30*time.Second {
		t.Errorf("it took %v", d)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// TestTrialOfOddServers_SaysWhatTheDaemonSays checks that the trial takes what the daemon takes: ids of
// another type, cursors that are no strings, a later page that is refused, an older version; and that
// it quotes a program that speaks no MCP.
func TestTrialOfOddServers_SaysWhatTheDaemonSays(t *testing.T) {
	t.Parallel()
	const begin = undiscovered + `read -r begin; echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-06-18"}}'; read -r note; read -r list;`
	for name, x := range map[string]struct{ script, tools, err string }{
		"string ids": {
			undiscovered + `read -r begin; echo '{"jsonrpc":"2.0","id":"2","result":{},"error":null}'; read -r note; read -r list;` +
				`echo '{"jsonrpc":"2.0","id":3.0,"result":{"tools":[{"name":"a"}]}}'`, "a", "",
		},
		"cursors": {begin + `echo '{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"a"}],"nextCursor":7}}'; read -r more;` +
			`case $more in *'"cursor":7}'*) echo '{"jsonrpc":"2.0","id":4,"result":{"tools":[{"name":"b"}],"nextCursor":null}}';; esac`, "a b", ""},
		"second page refused": {begin + `echo '{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"a"}],"nextCursor":"2"}}'; read -r more;` +
			`echo '{"jsonrpc":"2.0","id":4,"error":{"code":-32000,"message":"no"}}'`, "a", ""},
		"older version": {
			undiscovered + `read -r begin; echo '{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no","data":{"supported":["2024-11-05"]}}}'; read -r begin;` +
				`case $begin in *2024-11-05*) echo '{"jsonrpc":"2.0","id":3,"result":{}}'; read -r note; read -r list;` +
				`echo '{"jsonrpc":"2.0","id":4,"result":{"tools":[{"name":"a"}]}}';; esac`, "a", "",
		},
		"no MCP, and ends":  {`echo Credit balance is too low; exit 1`, "", "Credit balance is too low"},
		"no MCP, and waits": {`echo Listening on port 3000; printf 'Name: '; exec sleep 60`, "", "Listening on port 3000 / Name:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := resolve.Process{Command: "/bin/sh", Args: []string{"-c", x.script}}
			tools, err := ask(t.Context(), p, "", wanted{patience: 15 * time.Second}, nil)
			if got := strings.Join(tools.names, " "); got != x.tools || (err != nil) != (x.err != "") ||
				err != nil && !strings.Contains(err.Error(), x.err) {
				t.Errorf("%q, %v; want %q, %q", got, err, x.tools, x.err)
			}
		})
	}
}
