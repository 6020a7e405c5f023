package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/command"
	"holdline/daemon/sandbox"
	"holdline/daemon/statedir"
)

// Names in the configuration directory, and in the directory of a run that stands in its place.
const (
	dirHome     = "claude"            // of the run's temporary directory
	dirProjects = "projects"          // the transcripts of sessions by project, which a later run continues
	fileLogin   = ".credentials.json" // the login, which the program renews
	fileState   = ".claude.json"      // beside the configuration directory, unless CLAUDE_CONFIG_DIR names that
)

// maxName is the largest number of characters in the name of a project's directory. The program cuts
// a longer one, and adds a hash of the path.
const maxName = 200

// early is how long before its end a login is renewed outside of the wall: the program renews one that
// ends within five minutes. Several runs at once would else renew it each for itself.
const early = 5 * time.Minute

// walled reports whether the kernel holds the program of a run. Then it gets a configuration
// directory of the run's own.
func (c *Claude) walled(req *engine.Request, info *engine.Info) bool {
	by := info.Level(req.Level).EnforcedBy
	return req.TempDir != "" && c.configDir() != "" && (by == engine.ByLandlock || by == engine.BySandbox)
}

// homeOf returns the configuration directory of a run.
func homeOf(req *engine.Request) string { return filepath.Join(sandbox.Resolved(req.TempDir), dirHome) }

// transcripts returns the directory of the transcripts of the project in cwd, without links.
func (c *Claude) transcripts(cwd string) string {
	dir := sandbox.Resolved(filepath.Join(c.configDir(), dirProjects))
	return sandbox.Resolved(filepath.Join(dir, projectName(sandbox.Resolved(cwd))))
}

// projectName returns the name that the program gives the transcripts of a directory: each UTF-16 unit
// of the path that is no letter and no digit of ASCII becomes a hyphen. A long name ends with a hash of
// the units, of 32 bits, in base 36.
func projectName(dir string) string {
	var name strings.Builder
	var hash int32
	for _, unit := range utf16.Encode([]rune(dir)) {
		hash = hash<<5 - hash + int32(unit)
		if unit < utf8.RuneSelf && strings.ContainsRune(alphanumeric, rune(unit)) {
			name.WriteByte(byte(unit))
		} else {
			name.WriteByte('-')
		}
	}
	if name.Len() <= maxName {
		return name.String()
	}
	return name.String()[:maxName] + "-" + strconv.FormatInt(max(int64(hash), -int64(hash)), 36)
}

// alphanumeric are the characters that [projectName] keeps.
const alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Furnish makes the configuration directory of a run. It has the transcripts of the user's, by a link,
// and what says who is logged in; settings, hooks, plugins, commands, agents, skills and instructions
// are not there to be read or written.
func (c *Claude) Furnish(ctx context.Context, req engine.Request, info engine.Info, _ string) (engine.Request, error) {
	if !c.walled(&req, &info) {
		return req, nil
	}
	home, projects := homeOf(&req), sandbox.Resolved(filepath.Join(c.configDir(), dirProjects))
	err := os.MkdirAll(projects, 0o700)
	if err == nil {
		err = os.MkdirAll(home, 0o700)
	}
	if err == nil {
		err = os.Symlink(projects, filepath.Join(home, dirProjects))
	}
	if err == nil {
		err = statedir.WriteFile(filepath.Join(home, fileState), c.identity())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return req, fmt.Errorf("making the configuration directory of a run: %w", err)
	}
	c.renew(ctx, info.Path, &info)
	return req, nil
}

// stateFile returns the path of the user's own file with the state of the program.
func (c *Claude) stateFile() string {
	if command.Variable(c.env, configVariable) == "" {
		return c.configDir() + ".json"
	}
	return filepath.Join(c.configDir(), fileState)
}

// kept are the members of the program's state that say who is logged in.
var kept = []string{"oauthAccount", "primaryApiKey", "userID"}

// identity returns what the program's state of the user says of the login, as a state of a run.
func (c *Claude) identity() []byte {
	var all map[string]json.RawMessage
	state := map[string]json.RawMessage{"hasCompletedOnboarding": json.RawMessage("true")}
	if b, err := readBounded(c.stateFile(), maxState); err == nil && json.Unmarshal(b, &all) == nil {
		for _, name := range kept {
			if value, ok := all[name]; ok {
				state[name] = value
			}
		}
	}
	b, err := json.Marshal(state)
	if err != nil {
		return []byte("{}") // it has only JSON
	}
	return b
}

// loginOf returns the file of the login, and the copy that a run gets.
func (c *Claude) loginOf(req *engine.Request) *engine.Login {
	return &engine.Login{
		Own:  sandbox.Resolved(filepath.Join(c.configDir(), fileLogin)),
		Copy: filepath.Join(homeOf(req), fileLogin),
		Give: func(own []byte) []byte { return merged([]byte("{}"), own) },
		Take: merged,
	}
}

// keyLogin is the member of the file of the login that a run gets, and may renew. Others are logins
// of MCP servers.
const keyLogin = "claudeAiOauth"

// merged returns the file own with the login of the file from; nil if that has none.
func merged(own, from []byte) []byte {
	var into, has map[string]json.RawMessage
	if json.Unmarshal(own, &into) != nil || json.Unmarshal(from, &has) != nil || into == nil {
		return nil
	}
	var login struct {
		Access string `json:"accessToken"`
	}
	if json.Unmarshal(has[keyLogin], &login) != nil || login.Access == "" {
		return nil
	}
	if bytes.Equal(into[keyLogin], has[keyLogin]) {
		return own
	}
	into[keyLogin] = has[keyLogin]
	b, err := json.Marshal(into)
	if err != nil {
		return nil
	}
	return b
}

// renew lets the program renew a login that is about to end, outside of the wall, where it waits for
// other programs that do the same. If that fails the run says so.
func (c *Claude) renew(ctx context.Context, path string, info *engine.Info) {
	var file struct {
		Login struct {
			Expires int64 `json:"expiresAt"` // Unix time in ms
		} `json:"claudeAiOauth"`
	}
	b, err := readBounded(filepath.Join(c.configDir(), fileLogin), maxState)
	if err != nil || json.Unmarshal(b, &file) != nil || file.Login.Expires == 0 ||
		time.Until(time.UnixMilli(file.Login.Expires)) > early {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	own := c.login()
	asked := c.program
	asked.Env = c.environment(own.env)
	_, _ = asked.Probe(ctx, path, append(isolation(info), "--settings", settings(own, nil), "auth", "status")...)
}
