package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"holdline/contrib"
)

// checkLaunchd checks holdline's LaunchAgent: its file, the program that it starts, and
// whether launchd has loaded it. It returns nothing on systems without launchd.
func checkLaunchd(ctx context.Context, o Options) []Finding {
	if o.LaunchAgents == "" {
		return nil
	}
	path := filepath.Join(o.LaunchAgents, contrib.LaunchAgentFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return []Finding{{Check: "launchd", State: OK, What: "no agent is installed: agents start the daemon"}}
	}
	bin := contrib.LaunchProgram(text)
	f := Finding{Check: "launchd", State: OK, What: path}
	f = checkUnitProgram(f, path, bin, err, "holdline install --launchd")
	// The text also differs if the user has edited the file.
	if f.State == OK && string(text) != string(contrib.LaunchAgent(bin, o.Home)) {
		f = f.with(Note, path+" is not as this holdline would write it",
			"it is another version's, or was edited", "holdline install --launchd")
	}
	found := []Finding{f}
	domain := fmt.Sprintf("gui/%d", os.Getuid())
	if err := o.Launchctl(ctx, "print", domain+"/"+contrib.LaunchLabel); err != nil {
		found = append(found, Finding{Check: "launchd state"}.with(Note, "launchd has not loaded "+path,
			"it starts no daemon, and none again after a crash: agents do",
			fmt.Sprintf("launchctl bootstrap %s %s", domain, path)))
	}
	return found
}

// checkUnitProgram checks the program that the file of a service manager starts. err is
// that of reading the file, and install the command that writes it. f is returned if all
// is well.
func checkUnitProgram(f Finding, path, bin string, err error, install string) Finding {
	if err != nil {
		return f.with(Problem, err.Error(), "which program the service manager starts is not known", install)
	}
	if err := checkRunnable(bin); err != nil {
		return f.with(Problem, fmt.Sprintf("%s starts %q: %v", path, bin, err), "the daemon does not start",
			install+", with the holdline that is to run")
	}
	return f
}
