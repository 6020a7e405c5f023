package attach

import (
	"os"
	"path/filepath"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/control"
	"holdline/protocol/project"
)

// Whereabouts returns where this command runs: its directory and its project, which
// the user can name by HOLDLINE_PROJECT.
func Whereabouts(proc *cmdenv.Process) control.Whereabouts {
	cwd, _ := os.Getwd() // one that was removed under us is no reason to fail
	if resolved, err := filepath.EvalSymlinks(cwd); err == nil && cwd != "" {
		cwd = resolved
	}
	at := control.Whereabouts{Cwd: cwd, Project: proc.Getenv("HOLDLINE_PROJECT")}
	if at.Project == "" && cwd != "" {
		at.Project = project.Key(cwd)
	}
	return at
}
