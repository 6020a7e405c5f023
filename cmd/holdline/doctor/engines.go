package doctor

import (
	"cmp"
	"fmt"
	"strings"

	"holdline/daemon/adapter/engines"
	"holdline/daemon/config"
	"holdline/daemon/limits"
	"holdline/daemon/sandbox"
	"holdline/daemon/userenv"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// checkEngines checks the consult programs, and what enforces the levels of consults. ask
// checks one program; seenBy says in whose environment it looks.
func (o *Options) checkEngines(ask func(engine string) (control.CheckAnswer, error), seenBy string) []Finding {
	var found []Finding
	var consults config.Consult
	if o.Loaded != nil {
		consults = o.Loaded.Consult
	}
	level := cmp.Or(consults.Level, "read") // of consults that ask for none
	for _, e := range engines.List(&consults) {
		check, err := ask(e.Name)
		if err != nil {
			found = append(found, Finding{Check: e.Name}.with(Problem, err.Error(),
				"whether consults with it can run is not known", "holdline logs"))
			continue
		}
		found = append(found, judgeEngine(e, check, seenBy, o.Environ))
		if e.Name == engines.BuiltIn[0].Name {
			found = append(found, checkLandlock(), o.checkConfinement(), o.checkLimits())
			found = append(found, checkLevels("consult", level, check)...)
		} else {
			found = append(found, checkLevels(e.Name, level, check)...)
		}
	}
	return found
}

// judgeEngine returns the finding about the check of one program. A program that cannot be
// used is a problem if it is the default one, else a note. environ is that of this shell.
func judgeEngine(e *engines.Engine, c control.CheckAnswer, seenBy string, environ []string) Finding {
	f := Finding{Check: e.Name, State: OK, What: fmt.Sprintf("%s, version %s, %s", c.Path, c.Version, c.Account)}
	if c.Version == "" { // an agent tells it when it is started
		f.What = c.Path + ", logged in " + c.Account
	}
	if c.Fault == nil {
		return f
	}
	state, why := Problem, fmt.Sprintf("consults cannot run (as seen by %s)", seenBy)
	if !c.Default {
		state = Note
		why = fmt.Sprintf("only consults that ask for the engine %s need it; those cannot run (as seen by %s)",
			e.Name, seenBy)
	}
	// The reason of the fault decides what the user can do.
	var fix string
	what := c.Fault.Fault.Detail
	switch c.Fault.Reason() {
	case fault.NotInstalled:
		var places []string
		if e.Variable != "" {
			places = append(places, e.Variable)
		}
		if e.Key != "" {
			places = append(places, e.Key+" in the configuration")
		}
		if fix = install(e, ""); len(places) > 0 {
			fix += ", or name the program: " + strings.Join(places, ", or ")
		}
		if name := c.Fault.Cause.Program; name != "" { // the finding about the PATH says where it was looked for
			what, fix = "Holdline's daemon cannot find `"+name+"`", cmp.Or(userenv.ShellHas(name, environ), fix)
		}
	case fault.NotLoggedIn:
		fix = e.Login + "; with an API key, " + e.ByKey
	case fault.Rejected:
		fix = "correct the configuration"
	case fault.Version:
		fix = install(e, "@latest")
	case "": // the fault says what is wrong with consult.env_file
		fix = "correct it; each consult reads the file again"
	default:
		fix = fmt.Sprintf("run %s --version yourself", e.Name)
	}
	f = f.with(state, what, why, fix)
	f.Unused = state == Note && c.Fault.Reason() == fault.NotInstalled
	return f
}

// install returns how the user installs a program. version is "" or begins with "@". A program
// without a package of npm is named by its title only.
func install(e *engines.Engine, version string) string {
	if e.Package == "" {
		return "install " + e.Title
	}
	return "npm install -g " + e.Package + version
}

// checkLevels returns a finding about each level of an engine: what enforces it, or why it is
// refused. used is the level that consults have which ask for none.
func checkLevels(name, used string, c control.CheckAnswer) []Finding {
	var found []Finding
	for _, l := range c.Levels {
		f := Finding{Check: name + " level " + l.Name, State: OK, What: "held by " + l.EnforcedBy}
		if len(l.Notes) > 0 {
			f.What += " (" + strings.Join(l.Notes, "; ") + ")"
		}
		// The text of a lack has two parts: what is missing, and what fixes that.
		if l.Lacks != "" {
			what, fix, _ := strings.Cut(l.Lacks, "; ")
			f = f.with(Note, "refused: "+what,
				"a level that cannot be enforced is never run weaker; other levels work", fix)
			f.Unused = l.Name != used
		}
		found = append(found, f)
	}
	return found
}

// checkLandlock returns which version of Landlock the kernel has, and what that version cannot
// do. A level says by itself what enforces it, so a lack of Landlock is only a note.
func checkLandlock() Finding {
	version := sandbox.Landlock()
	f := Finding{Check: "landlock", State: OK, What: fmt.Sprintf("ABI %d", version)}
	switch gaps := sandbox.Gaps(version); {
	case version == 0:
		return f.with(Note, "this machine has none",
			"only the lack of a tool that writes keeps a consult from writing, and not the kernel, too",
			"Linux 5.13 or newer, with landlock in the list of security modules (lsm= on the kernel's command line)")
	case gaps != "":
		return f.with(Note, f.What+": "+gaps, "the kernel does not refuse that to consults", "Linux 6.2 or newer")
	}
	return f
}

// checkLimits returns by what limits of servers are held. It puts a process into a control group
// as the daemon does, and looks.
func (o *Options) checkLimits() Finding {
	f := Finding{Check: "limits of servers", State: OK}
	held, err := limits.For(o.Environ).Try()
	if f.What = held.String(); err != nil {
		f.What += ": " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if !held.Whole {
		f = f.with(Note, f.What,
			"a server with limits starts and is not held to all of them; `holdline servers get NAME` shows which",
			"let systemd's user manager run (Linux), with the controllers cpu, memory and pids")
		f.Unused = !o.anyServer(func(h *config.Hosting) bool { return h.Bounds != (config.Bounds{}) })
	}
	return f
}

// checkConfinement returns what holds confined servers, or why none can be confined.
func (o *Options) checkConfinement() Finding {
	f := Finding{Check: "confined servers", State: OK}
	if err := sandbox.Refusal(false); err != nil {
		what, fix, _ := strings.Cut(err.Error(), "; ")
		f = f.with(Note, "refused: "+what,
			"a server with confine in its settings does not start, rather than unconfined; others do", fix)
		f.Unused = !o.anyServer(func(h *config.Hosting) bool { return h.Confine != "" && h.Confine != config.ConfineOff })
		return f
	}
	f.What = sandbox.Holds(process.SocketsNet, nil)
	if err := sandbox.Refusal(true); err != nil {
		f.What += "; network: a list of ports is refused: " + err.Error()
	}
	return f
}

// anyServer reports whether the configuration has a server with such settings.
func (o *Options) anyServer(has func(*config.Hosting) bool) bool {
	if o.Loaded == nil {
		return false
	}
	for _, s := range o.Loaded.Servers {
		if has(&s.Holdline) {
			return true
		}
	}
	return has(&config.Hosting{Bounds: o.Loaded.Bounds})
}
