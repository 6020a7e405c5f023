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

// ProjectKey is the first 16 hex digits of the SHA-256 of the real path of
// the nearest parent of cwd that has a .git, else of cwd.
func ProjectKey(cwd string) string {
	root, err := filepath.EvalSymlinks(cwd)
	if err != nil {
		root = cwd
	}
	sum := sha256.Sum256([]byte(clients.ProjectRoot(root)))
	return hex.EncodeToString(sum[:8])
}

// Whereabouts are those of this command.
func Whereabouts(proc *cmdenv.Process) control.Whereabouts {
	cwd, _ := os.Getwd() // one that was removed under us is no reason to fail
	at := control.Whereabouts{Cwd: cwd, Project: proc.Getenv("HOLDLINE_PROJECT")}
	if at.Project == "" && cwd != "" {
		at.Project = ProjectKey(cwd)
	}
	return at
}
