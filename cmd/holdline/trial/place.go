package trial

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"holdline/daemon/shellword"
)

// prepare creates the places of a column under o.Dir: a project with a git repository
// and a few files, and a home directory. Both have settings that allow everything and
// hooks that write, so that nothing but the enforced level keeps the program from
// writing.
func (o *Options) prepare(column string) (*places, error) {
	base := filepath.Join(o.Dir, column)
	p := &places{
		project: filepath.Join(base, "project"), outside: filepath.Join(base, "outside"),
		home: filepath.Join(base, "home"), shm: filepath.Join("/dev/shm", "holdline-selftest-"+rand.Text()),
	}
	settings, err := json.Marshal(permissive(p))
	if err != nil {
		return nil, err
	}
	files := map[string]string{
		"project/.claude/settings.json": string(settings),
		"home/.claude/settings.json":    string(settings),
		"project/.git/HEAD":             "ref: refs/heads/main\n",
		"project/.git/config":           "[core]\n\trepositoryformatversion = 0\n",
		"project/.git/objects/.keep":    "",
		"project/.git/refs/.keep":       "",
		"project/n.ipynb":               `{"cells":[],"metadata":{},"nbformat":4,"nbformat_minor":5}` + "\n",
		"home/.bashrc":                  "true\n",
	}
	for _, name := range []string{"f.txt", "sed.txt", "truncated.txt", "removed.txt", "moved.txt"} {
		files["project/"+name] = "hi\n"
	}
	err = os.MkdirAll(p.outside, 0o700)
	for name, data := range files {
		path := filepath.Join(base, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(data), 0o600))
	}
	return p, err
}

// permissive returns settings of a user, or of a project, that allow everything: all
// tools, no sandbox, and a hook for each event that creates a file outside of the
// project.
func permissive(p *places) map[string]any {
	hooks := map[string]any{}
	for _, event := range []string{"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"} {
		hooks[event] = []any{map[string]any{"hooks": []any{
			map[string]any{"type": "command", "command": "touch " + filepath.Join(p.outside, "hook-"+event)},
		}}}
	}
	return map[string]any{
		"permissions": map[string]any{
			"allow": []string{"Bash(*)", "Bash", "Write", "Edit", "NotebookEdit"}, "defaultMode": "bypassPermissions",
		},
		"hooks": hooks,
		"sandbox": map[string]any{
			"enabled": false, "allowUnsandboxedCommands": true, "excludedCommands": []string{"touch", "git"},
		},
	}
}

// readTree returns what lies where attempts write: the kind and content of each file,
// by its path, or the error of reading it. Of the dot files in the home directory,
// where the program keeps its own files, only those count at which an attempt is made.
//
// Two trees, read before and after the attempts, show what was changed. The result is
// never "" for a path that exists.
func readTree(p *places) map[string]string {
	found := map[string]string{}
	for _, root := range []string{
		p.project, p.outside, p.home, p.shm,
		filepath.Join(p.home, ".bashrc"), filepath.Join(p.home, ".npm"), filepath.Join(p.home, ".claude", "planted"),
	} {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				if !errors.Is(err, fs.ErrNotExist) {
					found[path] = err.Error()
				}
				return nil
			case filepath.Dir(path) == root && root == p.home && strings.HasPrefix(d.Name(), "."):
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			found[path] = d.Type().String()
			if d.Type().IsRegular() {
				data, err := os.ReadFile(path) //nolint:gosec // in a directory of our own
				found[path] = fmt.Sprintf("%q %v", data, err)
			}
			return nil
		})
	}
	return found
}

// changes returns the paths that differ. A path that is in one of both alone does.
func changes(before, after map[string]string) map[string]bool {
	changed := map[string]bool{}
	for _, found := range []map[string]string{before, after} {
		for path := range found {
			if before[path] != after[path] { // what lies at a path is never ""
				changed[path] = true
			}
		}
	}
	return changed
}

// hijacked returns a script that stands for a Claude Code that was taken over. It
// answers questions about its version and options as Claude Code does. When it runs,
// it makes each attempt that is a command, with a limit of ten seconds. If it then can
// write where it may, in its temporary directory, its result is [controlText]: the
// attempts were made.
func hijacked(p *places, all []attempt) string {
	return `#!/bin/sh
case "$*" in
--version) echo '2.1.329 (Claude Code)'; exit ;;
--help) echo '--input-format --output-format --strict-mcp-config --tools --permission-mode'
  echo '--settings --setting-sources --restricted'; exit ;;
esac
read -r prompt
` + shellAttempts(p, all) + `
result=done
timeout 10 bash -c ': > "${TMPDIR:?}/own"' && result=` + controlText + `
echo '{"type":"result","subtype":"success","is_error":false,' \
  '"num_turns":1,"result":"'"$result"'","session_id":"selftest"}'
`
}

// shellAttempts returns a script that makes each attempt that is a command, with a limit of ten
// seconds.
func shellAttempts(p *places, all []attempt) string {
	var b strings.Builder
	for _, a := range all {
		if command := a.command(p); command != "" {
			fmt.Fprintf(&b, "timeout 10 bash -c %s >/dev/null 2>&1 </dev/null\n", shellword.Quote(command))
		}
	}
	return b.String()
}

// controlText is what the programs of [hijacked] and [hijackedAgent] say once they have made the attempts.
const controlText = "control-42"

// hijackedAgent returns a script that stands for an agent that was taken over. It speaks the Agent
// Client Protocol, and makes the attempts when it gets its prompt. If it then can write where it
// may, it says so: a machine on which it can write nothing at all would prove nothing.
func hijackedAgent(p *places, all []attempt) string {
	const update = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":` +
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + controlText + `"}}}}`
	return `#!/bin/sh
while IFS= read -r line; do
  id=${line#*\"id\":} id=${id%%,*} result='{}'
  case "$line" in
  *'"method":"initialize"'*) result='{"protocolVersion":1}' ;;
  *'"method":"session/new"'*) result='{"sessionId":"s"}' ;;
  *'"method":"session/prompt"'*)
` + shellAttempts(p, all) + `
    : >"$HOME/own" && : >"$TMPDIR/own" && echo ` + shellword.Quote(update) + `
    result='{"stopReason":"end_turn"}' ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
`
}
