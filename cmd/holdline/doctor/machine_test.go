package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/userenv"
	"holdline/protocol/process"
	"holdline/protocol/programtest"
	"holdline/protocol/socket"
)

// options returns the options for a home without a daemon.
func options(t *testing.T) *Options {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	paths, err := socket.Resolve(filepath.Join(dir, "run", "s"), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return &Options{
		Paths: paths, StateDir: filepath.Join(dir, "state"), Config: filepath.Join(dir, "config.json"), Home: dir,
		LoginPath: func(context.Context) (string, error) { return "/login", nil },
	}
}

// configured writes a configuration with these servers.
func (o *Options) configured(t *testing.T, servers string) {
	t.Helper()
	cfg, err := config.Parse("config.json", []byte(`{"mcpServers":{`+servers+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	o.Loaded = &cfg
}

// TestRoom checks from which amount of free space and free inodes on a full file system is
// a problem.
func TestRoom(t *testing.T) {
	for _, c := range []struct {
		free, freeFiles, files uint64
		want                   State
	}{
		{100 << 20, 5, 10, OK},
		{64 << 20, 5, 10, OK},
		{64<<20 - 1, 5, 10, Problem},
		{100 << 20, 0, 10, Problem},
		{100 << 20, 0, 0, OK}, // btrfs counts no inodes
	} {
		f := judgeRoom(Finding{State: OK}, "/d", c.free, c.freeFiles, c.files, 64<<20)
		if f.State != c.want || !strings.Contains(f.What, "/d") || (f.Fix != "") != (c.want != OK) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
	if f := checkDisk("d", filepath.Join(t.TempDir(), "not", "there"), 0); f.State != OK ||
		!strings.Contains(f.What, "MiB free") {
		t.Errorf("a directory that is not there yet: %+v", f)
	}
}

// TestStale checks that a lock file of a process that has ended is noted, even if another
// process has its pid.
func TestStale(t *testing.T) {
	dead := exec.CommandContext(t.Context(), "true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	self := process.Self()
	for content, want := range map[string]State{
		"": OK, "garbage": OK,
		fmt.Sprintf("%d 1\n", dead.Process.Pid):          Note,
		fmt.Sprintf("%d %d\n", self.PID, self.Start+1):   Note, // another process has the pid now
		fmt.Sprintf("%d %d\n/s\n", self.PID, self.Start): OK,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, socket.LockFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if f := checkLock(dir, "state"); f.State != want {
			t.Errorf("lock %q: %+v, want %s", content, f, want)
		}
	}
	if f := checkLock(t.TempDir(), "state"); f.State != OK {
		t.Errorf("no lock: %+v", f)
	}
}

// TestPathFinding checks that the finding says where PATH comes from, and when to capture
// it again.
func TestPathFinding(t *testing.T) {
	o := options(t)
	if f, path := o.checkPath(t.Context()); f.State != OK || path != "/login" {
		t.Errorf("without a captured one: %+v, %q", f, path)
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]State{"/login:/x\n": OK, "/x\n": Note, "\n": Problem} {
		if err := os.WriteFile(userenv.PathFile(o.StateDir), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, _ := o.checkPath(t.Context())
		if f.State != want || want != OK && !strings.Contains(f.Fix, "holdline install --path") {
			t.Errorf("captured %q: %+v, want %s", content, f, want)
		}
	}
	if err := os.Remove(userenv.PathFile(o.StateDir)); err != nil {
		t.Fatal(err)
	}
	o.LoginPath = func(context.Context) (string, error) { return "", errors.New("the shell hangs") }
	if f, _ := o.checkPath(t.Context()); f.State != Note || !strings.Contains(f.What, "hangs") {
		t.Errorf("without a login shell: %+v", f)
	}
}

// TestMissingCommands checks that the finding names the server, its command and where it
// was searched.
func TestMissingCommands(t *testing.T) {
	o := options(t)
	dir := t.TempDir()
	programtest.Write(t, filepath.Join(dir, "here"), "")
	mine := t.TempDir()
	programtest.Write(t, filepath.Join(mine, "mine"), "")
	o.Environ = []string{"PATH=" + mine} // the daemon need not have this PATH
	o.configured(t, fmt.Sprintf(`"good":{"command":"here"},"mine":{"command":"mine"},
		"gone":{"command":"npx-not-there"},"off":{"command":"nothing","disabled":true},
		"own":{"command":"here","env":{"PATH":%q}},"far":{"url":"https://example.com/mcp"},
		"unset":{"command":"here","env":{"A":"${SURELY_NOT_SET}"}}`, "/elsewhere"))
	found := o.checkPrograms(dir + ":/opt/x")
	var about []string
	for _, f := range found {
		about = append(about, f.Check+" "+string(f.State))
		switch f.Check {
		case "server gone":
			if !strings.Contains(f.What, "npx-not-there is in none of "+dir+", /opt/x") ||
				!strings.Contains(f.Fix, "holdline install --path") {
				t.Errorf("%+v", f)
			}
		case "server own":
			if !strings.Contains(f.What, "/elsewhere") {
				t.Errorf("%+v", f)
			}
		case "server unset":
			if !strings.Contains(f.What, "SURELY_NOT_SET") {
				t.Errorf("%+v", f)
			}
		}
	}
	if want := []string{
		"server gone problem", "program of server good ok", "server mine problem", "server own problem",
		"server unset note",
	}; !slices.Equal(about, want) {
		t.Errorf("found %q, want %q", about, want)
	}
}

// TestOrphans checks that processes left by a dead worker are found, by pid, and that those
// of another home are not.
func TestOrphans(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("environments can be read on linux only")
	}
	o := options(t)
	run := filepath.Join(o.Home, "run")
	if f := o.checkOrphans(t.Context(), run); len(f) != 1 || f[0].State != OK {
		t.Fatalf("before: %+v", f)
	}
	child := prey(t, o.Home)
	found := o.checkOrphans(t.Context(), run)
	if len(found) != 1 || found[0].State != Problem || found[0].Fix != fmt.Sprintf("kill -9 %d", child) {
		t.Fatalf("found %+v, want process %d", found, child)
	}
	o.Home = "/somebody/else"
	if f := o.checkOrphans(t.Context(), run); f[0].State != OK {
		t.Errorf("another home's process: %+v", f)
	}
}

// prey starts a process like one that a dead worker left, and returns its pid. The process
// ends with the test.
func prey(t *testing.T, home string) (pid int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "echo up; read -r _")
	cmd.Env = []string{"HOME=" + home, process.EnvWorker + "=/nowhere/holdline/w/00000000-0000-4000-8000-000000000000"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	// The environment of a process cannot be read at the very moment at which it starts.
	up := bufio.NewReader(out)
	_, _ = up.ReadString('\n')
	end := make(chan struct{})
	go func() {
		defer close(end)
		_, _ = up.ReadString('\n') // until the process has ended
		_ = cmd.Wait()
	}()
	t.Cleanup(func() { _ = in.Close(); <-end })
	return cmd.Process.Pid
}

// TestFilesThatWereEmptied_AreNamed checks that doctor names a note of a worker elsewhere that cannot be read, and
// a file of variables that is empty, unless it says by a comment that it is to be.
func TestFilesThatWereEmptied_AreNamed(t *testing.T) {
	dir := t.TempDir()
	note, env := filepath.Join(dir, "away", "stools-1"), filepath.Join(dir, "env")
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if found := append(checkNotes(dir), checkEmptied("variables", env)...); len(found) != 0 {
		t.Errorf("without files: %+v", found)
	}
	for text, bad := range map[string]bool{"": true, "# none\n": false, "A=1\n": false} {
		write(env, text)
		found := checkEmptied("variables", env)
		if (len(found) == 1) != bad || bad && (found[0].State != Problem || !strings.Contains(found[0].What, env)) {
			t.Errorf("variables %q: %+v", text, found)
		}
	}
	for _, text := range []string{"", "{torn", `{"id":"stools-1","host":"build-box","window_ms":1000}`} {
		write(note, text)
		found := checkNotes(dir)
		if len(found) != 1 || found[0].State != Problem || !strings.Contains(found[0].What, note) {
			t.Errorf("the note %q: %+v", text, found)
		}
	}
}

// TestProgramOfServerHasMoved_NamesWhereItIs checks that doctor says where a program is now that is gone from the path in the
// entry, and how to name that.
func TestProgramOfServerHasMoved_NamesWhereItIs(t *testing.T) {
	o := options(t)
	now := filepath.Join(t.TempDir(), "node")
	programtest.Write(t, now, "#!/bin/sh\n")
	gone := filepath.Join(o.Home, ".nvm/versions/node/v20.1.0/bin/")
	o.configured(t, `"files":{"command":"`+gone+`/node","args":["x"]},"other":{"command":"`+gone+`/nothing-like-it"}`)
	found := o.checkPrograms(filepath.Dir(now))
	if len(found) != 2 {
		t.Fatalf("%+v", found)
	}
	if f := found[0]; f.State != Problem || !strings.Contains(f.What, gone+"/node is not there") ||
		f.Fix != "node is now at "+now+"; to name that: holdline servers edit files" {
		t.Errorf("%+v", f)
	}
	if f := found[1]; f.State != Problem || strings.Contains(f.Fix, "is now at") || !strings.Contains(f.Fix, "disable other") {
		t.Errorf("%+v", f)
	}
}
