package serverscmd

import (
	"path"
	"slices"
	"strings"

	"holdline/cmd/holdline/console"
	"holdline/daemon/config"
	"holdline/daemon/redact"
)

// launchers are programs that run another program, which they name after flags of their own. A
// value has the words that come before these flags, such as dlx, and then the flags that are
// followed by a value.
var launchers = map[string][]string{
	"npx":     {"-p", "--package", "-c", "--call"},
	"bunx":    {"-p", "--package"},
	"uvx":     {"--from", "--with", "-p", "--python", "--index-url"},
	"pnpm":    {"dlx", "--package"},
	"yarn":    {"dlx", "-p", "--package"},
	"uv":      {"tool", "run", "--from", "--with", "-p", "--python", "--directory", "--project"},
	"node":    {"-r", "--require", "--import", "--loader"},
	"bun":     {"x", "run"},
	"deno":    {"run"},
	"python":  {"-W", "-X"},
	"python3": {"-W", "-X"},
	"docker": {
		"run", "-e", "--env", "--env-file", "-v", "--volume", "--mount", "--name", "--network", "-p", "--publish",
		"-u", "--user", "-w", "--workdir", "--entrypoint",
	},
}

// commandLine is the command line of a server, without secrets. Where there is not enough space
// for it, it says above all which program is the server.
type commandLine []string

// commandOf returns the command line of a server.
func commandOf(s config.Settings) commandLine {
	return append(commandLine{s.Command}, redact.Args(s.Args)...)
}

// String returns the whole command line.
func (c commandLine) String() string { return strings.Join(c, " ") }

// Shorter leaves out the launcher's own flags. If the launcher and the program do not fit
// either, it keeps the end of the program's name, which says more than its beginning:
// "npx …/server-filesystem".
func (c commandLine) Shorter(columns int) string {
	launcher := path.Base(c[0])
	rest := c.launched()
	if len(rest) == 0 {
		return c.String()
	}
	short := launcher + " " + rest[0]
	if dir, base := path.Split(rest[0]); dir != "" && console.Width(short) > columns {
		return launcher + " …/" + base
	}
	return strings.Join(append([]string{launcher}, rest...), " ")
}

// launched returns the program that a launcher runs, and its arguments; nil if there is no
// launcher, or it runs something else than a program by its name.
func (c commandLine) launched() []string {
	own, known := launchers[path.Base(c[0])]
	if !known {
		return nil
	}
	for i := 1; i < len(c); i++ {
		word := c[i]
		switch {
		case word == "-c" || word == "-e" && path.Base(c[0]) == "node":
			return nil // code
		case slices.Contains(own, word):
			if strings.HasPrefix(word, "-") {
				i++ // its value
			}
		case !strings.HasPrefix(word, "-"):
			return c[i:]
		}
	}
	return nil
}
