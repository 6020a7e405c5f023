package claude

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"holdline/daemon/command"
)

// fileSettings is the name of the user's own settings file in the configuration
// directory.
const fileSettings = "settings.json"

// Bounds of what is read of files of the user, in bytes.
const (
	maxSettings = 1 << 20
	maxState    = 32 << 20 // the program keeps the history of every project there
)

// helpers are the settings that name a command by which the program logs in. A run gets
// the command in a variable, and its settings name only the variable: the command may
// contain a key, and other users can see a command line.
var helpers = []struct{ setting, variable string }{
	{"apiKeyHelper", "CONSULT_API_KEY_HELPER"},
	{"awsAuthRefresh", "CONSULT_AWS_AUTH_REFRESH"},
	{"awsCredentialExport", "CONSULT_AWS_CREDENTIAL_EXPORT"},
	{"gcpAuthRefresh", "CONSULT_GCP_AUTH_REFRESH"},
}

// login is what the user's own settings say about logging in. A run reads no settings
// file and gets this instead.
type login struct {
	env      []string          // variables, the commands of the helpers among them
	commands map[string]string // settings of a run: how each helper is called
}

// login reads the login from the user's own settings file. A file that is missing, cannot be
// read or is no JSON object gives an empty login: the run then shows whether the program is
// logged in. It reads the file for each run, so that a change holds at once.
func (c *Claude) login() login {
	var l login
	var settings map[string]json.RawMessage
	if dir := c.configDir(); dir != "" {
		b, err := readBounded(filepath.Join(dir, fileSettings), maxSettings)
		if err != nil || json.Unmarshal(b, &settings) != nil {
			return l
		}
	}
	var env map[string]any
	if json.Unmarshal(settings["env"], &env) == nil {
		for name, value := range env {
			passes := (mayPass(name) || command.Network.Has(name)) && name != configVariable
			if s, ok := value.(string); ok && passes {
				l.env = append(l.env, name+"="+s)
			}
		}
	}
	l.commands = map[string]string{}
	for _, h := range helpers {
		if command := word(settings[h.setting]); strings.TrimSpace(command) != "" {
			l.env = append(l.env, h.variable+"="+command)
			// Not in the directory that is looked at: a relative path would name
			// a program of that.
			l.commands[h.setting] = `cd / && eval "$` + h.variable + `"`
		}
	}
	return l
}

// readBounded returns at most the first limit bytes of a file of the user. It does not wait for a pipe in
// the place of the file.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
