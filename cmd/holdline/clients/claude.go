package clients

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"
)

// commandLimit bounds one run of a client's own command. One that finds the
// lock held waits for ten seconds.
const commandLimit = 30 * time.Second

// toldKeys are the keys of an entry that `claude mcp add-json` keeps as they are.
// It drops those that it does not know.
var toldKeys = []string{"args", "command", "timeout", "type"}

// byClient has Claude Code make those edits of its file that its own command
// can make without losing anything: of entries for the user, which have none
// but known keys. It forgets the login of a remote server that it removes, so
// that such an entry is edited here, like all others that are left in f.steps.
// What the command leaves beside the file is noted in the edit. An error of the
// command is not told: the edit is made here then.
func (p *Plan) byClient(ctx context.Context, j *journal, f *File, e *edit) error {
	if p.o.Claude == "" || f.Client != "claude" || f.Make || filepath.Base(f.Path) != ".claude.json" {
		return nil
	}
	if now, err := readFile(f.Path); err != nil || !bytes.Equal(now, f.before) {
		return nil //nolint:nilerr // the edit itself tells what is wrong
	}
	e.Running = true
	if err := j.write(); err != nil {
		return err
	}
	was := f.before
	there := p.beside(f.Path)
	for i, k := range e.Keys {
		if !k.commandable() {
			continue
		}
		if err := p.run(ctx, f.Path, &f.steps[i], k); err != nil {
			break
		}
	}
	for path := range p.beside(f.Path) {
		if !there[path] {
			e.Litter = append(e.Litter, path)
		}
	}
	slices.Sort(e.Litter)
	e.Running = false
	if err := p.rest(f, e, was); err != nil {
		return err
	}
	return j.write()
}

// commandable tells whether the client's own command makes the change as it
// is meant.
func (k *keyChange) commandable() bool {
	if len(k.Path) != 2 || strings.HasPrefix(k.name(), "-") {
		return false
	}
	if k.Old != nil {
		if old, ok := decode([]byte(*k.Old)).(map[string]any); !ok || old["url"] != nil {
			return false
		}
	}
	if k.New == nil {
		return true
	}
	entry, _ := decode([]byte(*k.New)).(map[string]any)
	for key := range entry {
		if !slices.Contains(toldKeys, key) {
			return false
		}
	}
	return true
}

// run makes one change.
func (p *Plan) run(ctx context.Context, path string, s *step, k *keyChange) error {
	if s.old != "" {
		if err := p.claude(ctx, path, "mcp", "remove", "--scope", "user", k.name()); err != nil {
			return err
		}
	}
	if k.New == nil {
		return nil
	}
	return p.claude(ctx, path, "mcp", "add-json", "--scope", "user", k.name(), string(encode(decode([]byte(*k.New)))))
}

// claude runs Claude Code's program for the file at path. It gets little of the
// environment: nothing that makes it think that it runs in a session.
func (p *Plan) claude(ctx context.Context, path string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.o.Claude, args...)
	cmd.Dir = "/"
	for _, kv := range p.o.Environ {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains([]string{"HOME", "USER", "LOGNAME", "PATH", "LANG", "TMPDIR", "CLAUDE_CONFIG_DIR"}, name) {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("editing %s by its client: %w", path, err)
	}
	return nil
}

// beside are the directories and files that the command may leave: copies of
// the file, in its client's directory.
func (p *Plan) beside(path string) map[string]bool {
	out := map[string]bool{}
	dir := filepath.Join(p.o.Home, ".claude")
	if at := filepath.Dir(path); at != filepath.Clean(p.o.Home) {
		dir = at // CLAUDE_CONFIG_DIR
	}
	for _, d := range []string{dir, filepath.Join(dir, "backups"), filepath.Join(dir, "telemetry")} {
		if !exists(d) {
			continue
		}
		out[d] = true
		list, _ := os.ReadDir(d)
		for _, one := range list {
			if d != dir && one.Type().IsRegular() {
				out[filepath.Join(d, one.Name())] = true
			}
		}
	}
	return out
}

// rest plans what the client's command has left to do.
func (p *Plan) rest(f *File, e *edit, was []byte) error {
	doc := f.read()
	if doc == nil {
		return stay("%s", f.Why)
	}
	var steps []step
	for i, k := range e.Keys {
		_, there := doc.text(k.Path)
		if k.New == nil && !there || k.New != nil && there && doc.same(k.Path, *k.New) {
			f.done = append(f.done, k)
			continue
		}
		steps = append(steps, f.steps[i])
		if k.Old != nil && !there { // removed, and not added
			if err := doc.put(k.Path, *k.Old); err != nil {
				return err
			}
		}
	}
	if len(f.done) == 0 && bytes.Equal(f.before, was) {
		return nil
	}
	f.steps = steps
	if err := p.edit(f, doc); err != nil {
		return err
	}
	e.After = ""
	if grown(was, f.after) {
		e.After = sum(f.after)
	}
	return nil
}

// grown tells whether a file has all that it had, but for its servers: then
// what is new in it is what the client's command itself wrote.
func grown(was, now []byte) bool {
	before, _ := decode(was).(map[string]any)
	after, _ := decode(now).(map[string]any)
	for key := range maps.Keys(before) {
		if key != "mcpServers" && key != "projects" && !reflect.DeepEqual(before[key], after[key]) {
			return false
		}
	}
	return after != nil && sameProjects(before["projects"], after["projects"])
}

// sameProjects compares what projects say, but for their servers.
func sameProjects(before, after any) bool {
	was, _ := before.(map[string]any)
	now, _ := after.(map[string]any)
	if len(was) != len(now) {
		return false
	}
	for dir := range was {
		a, _ := was[dir].(map[string]any)
		b, _ := now[dir].(map[string]any)
		a, b = maps.Clone(a), maps.Clone(b)
		delete(a, "mcpServers")
		delete(b, "mcpServers")
		if !reflect.DeepEqual(a, b) {
			return false
		}
	}
	return true
}
