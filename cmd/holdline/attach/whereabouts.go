package attach

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"holdline/cmd/holdline/clients"
	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/control"
)

// ProjectKey returns a key for the project of a directory: the first 16 hex digits of
// the SHA-256 of the real path of the nearest directory with a .git that is cwd or
// above it, else of cwd itself.
func ProjectKey(cwd string) string {
	root, err := filepath.EvalSymlinks(cwd)
	if err != nil {
		root = cwd
	}
	sum := sha256.Sum256([]byte(clients.ProjectRoot(root)))
	return hex.EncodeToString(sum[:8])
}

// Whereabouts returns where this command runs: its directory and its project, which
// the user can name by HOLDLINE_PROJECT.
func Whereabouts(proc *cmdenv.Process) control.Whereabouts {
	cwd, _ := os.Getwd() // one that was removed under us is no reason to fail
	at := control.Whereabouts{Cwd: cwd, Project: proc.Getenv("HOLDLINE_PROJECT")}
	if at.Project == "" && cwd != "" {
		at.Project = ProjectKey(cwd)
	}
	return at
}
