package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"holdline/contrib"
)

// launchd looks at holdline's LaunchAgent.
func launchd(ctx context.Context, o Options) []Finding {
	if o.LaunchAgents == "" {
		return nil
	}
	const install = "holdline install --launchd"
	path := filepath.Join(o.LaunchAgents, contrib.LaunchAgentFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return []Finding{{Check: "launchd", State: OK, What: "no agent is installed: agents start the daemon"}}
	}
	f := Finding{Check: "launchd", State: OK, What: path}
	bin := contrib.LaunchProgram(text)
	switch wrong := runnable(bin); {
	case err != nil:
		f.State, f.What, f.Why, f.Mend = Problem, err.Error(), "nobody knows which program launchd starts", install
	case wrong != nil:
		f.State, f.What = Problem, fmt.Sprintf("%s starts %q: %v", path, bin, wrong)
		f.Why, f.Mend = "the daemon does not start", install+", with the holdline that is to run"
	case !bytes.Equal(text, contrib.LaunchAgent(bin, o.Home)):
		f.State, f.What = Note, path+" is not as this holdline would write it"
		f.Why, f.Mend = "it is another version's, or was edited", install
	}
	found := []Finding{f}
	domain := fmt.Sprintf("gui/%d", os.Getuid())
	if err := o.Launchctl(ctx, "print", domain+"/"+contrib.LaunchLabel); err != nil {
		found = append(found, Finding{
			Check: "launchd state", State: Note, What: "launchd has not loaded " + path,
			Why: "it starts no daemon, and none again after a crash: agents do", Mend: fmt.Sprintf("launchctl bootstrap %s %s", domain, path),
		})
	}
	return found
}
