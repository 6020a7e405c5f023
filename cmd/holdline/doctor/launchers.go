package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"holdline/daemon/config"
	"holdline/daemon/leaf"
	"holdline/daemon/statedir"
)

// checkLaunchers says of the servers that may be started without their launchers which of them are, what that saves,
// and why others are not.
func (o *Options) checkLaunchers() (found []Finding) {
	if o.Loaded == nil || o.StateDir == "" {
		return nil
	}
	var names []string
	for name := range o.Loaded.Servers {
		s, _ := o.Loaded.Server(name)
		if !s.Enabled || s.Launcher != config.LauncherDirect || s.Transport != config.Stdio {
			continue
		}
		if option, _, _ := strings.Cut(leaf.Unknown(s.Command, s.Args), "="); option != "" { // its value may be a secret
			found = append(found, withLauncher(name, filepath.Base(s.Command), "its option "+option+" may change what that starts",
				"if that is as it should be: holdline config set mcpServers."+name+".holdline.launcher keep"))
		} else if leaf.IsLauncher(s.Command, s.Args) {
			names = append(names, name)
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Check, b.Check) })
	slices.Sort(names)
	known := leaf.Open(statedir.In(o.StateDir).Launches).Known(names...)
	var direct []string
	saves := int64(0)
	for _, name := range names {
		if len(known[name]) == 0 { // it was not started yet
			continue
		}
		latest := known[name][0]
		if latest.Why == "" {
			direct, saves = append(direct, name), saves+latest.Saves
			continue
		}
		s, _ := o.Loaded.Server(name)
		found = append(found, withLauncher(name, filepath.Base(s.Command), latest.Why,
			"to try again: holdline servers restart "+name+" --refresh; else set its launcher to keep"))
	}
	if len(direct) > 0 {
		what := strings.Join(direct, ", ")
		if saves > 0 {
			what += fmt.Sprintf("; with one process each, that saves %d MB", max(1, saves/1e6))
		}
		found = append([]Finding{{Check: "servers started without their launchers", State: OK, What: what}}, found...)
	}
	return found
}

// withLauncher returns the finding that a server is started with its launcher, and why.
func withLauncher(server, launcher, why, fix string) Finding {
	return Finding{
		Check: "launcher of server " + server, State: Note,
		What: fmt.Sprintf("it is started with %s: %s", launcher, why),
		Why:  launcher + " stays beside it, which takes memory, and makes its starts longer",
		Fix:  fix,
	}
}
