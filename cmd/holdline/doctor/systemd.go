package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"holdline/contrib"
	"holdline/daemon/command"
	"holdline/daemon/service"
)

// installUnits is the command that writes the units anew.
const installUnits = "holdline install --systemd"

// checkSystemd checks holdline's units of this user's systemd: their files, then their states,
// then whether they outlive the user's logout. It returns nothing if that systemd does not run.
func checkSystemd(ctx context.Context, o Options) []Finding {
	socket := o.Units.File(contrib.SystemdSocket)
	switch {
	case !o.Units.Running():
		return nil
	case socket == "":
		return []Finding{{Check: "systemd", State: OK, What: "no units are installed: agents start the daemon"}}
	}
	found := []Finding{checkUnitFiles(o.Units, socket)}
	listening, serving, err := o.Units.Ask(ctx)
	if err != nil {
		found = append(found, Finding{Check: "systemd state"}.with(Problem, err.Error(),
			"how the units are is not known", "systemctl --user status holdline.socket"))
	} else if f := checkUnitStates(o.Units.Enabled() && o.Paths.Stopped() == nil, listening, serving); f.State != OK {
		found = append(found, f)
	}
	if o.Units.Enabled() {
		found = append(found, checkLinger(o.Linger))
	}
	return found
}

// checkUnitFiles compares the units with those that this program would install for the same
// binary. socket is the path of the socket unit. Drop-ins are not compared: they are where users
// change a unit.
func checkUnitFiles(u service.Units, socket string) Finding {
	f := Finding{Check: "systemd units", State: OK, What: socket}
	path := u.File(contrib.SystemdService)
	if path == "" {
		return f.with(Problem, "holdline.socket is installed, and holdline.service is not",
			"agents connect, and nothing answers", installUnits)
	}
	text, err := os.ReadFile(path)
	bin := execStart(string(text))
	if f = checkUnitProgram(f, path, bin, err, installUnits); f.State != OK {
		return f
	}
	// Units that were edited, or belong to another version, differ from what this program
	// writes.
	units, err := contrib.SystemdUnits(bin)
	if err != nil {
		return f.with(Note, fmt.Sprintf("%s: %v", path, err), "this holdline would not write such a unit", installUnits)
	}
	for _, unit := range units {
		path := u.File(unit.Name)
		if text, err := os.ReadFile(path); err != nil || string(text) != unit.Text {
			return f.with(Note, path+" is not as this holdline would write it",
				"it is another version's, or was edited (a drop-in is kept: systemctl --user edit "+unit.Name+")",
				installUnits)
		}
	}
	return f
}

// startPattern finds the program that a service unit starts, which may be in quotes.
var startPattern = regexp.MustCompile(`(?m)^[ \t]*ExecStart=(?:"([^"\n]*)|([^" \n]*))`)

// execStart returns the program that a service unit starts, or "". It knows the forms that
// install writes, and not all of systemd.service(5).
func execStart(text string) string {
	found := startPattern.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1] + found[2]
}

// checkRunnable returns an error if the file at path is no program. It accepts a path with a
// specifier, which only systemd can expand.
func checkRunnable(path string) error {
	switch {
	case path == "":
		return errors.New("no ExecStart=")
	case strings.Contains(path, "%"):
		return nil
	}
	return command.CheckExecutable(path)
}

// checkUnitStates judges the states of the units. enabled reports whether the user has enabled
// them. The first rule that applies counts.
func checkUnitStates(enabled bool, socket, daemon service.UnitState) Finding {
	f := Finding{Check: "systemd state", State: OK}
	absence := service.AbsenceOf(socket)
	switch {
	case socket.Failed() && absence != nil:
		return f.with(Problem, absence.Why, "agents cannot connect", absence.Hint)
	case socket.NeedReload || daemon.NeedReload:
		return f.with(Note, "systemd has not read the units since they were changed",
			"what they say now is not in force",
			"systemctl --user daemon-reload; systemctl --user restart holdline.service")
	case enabled && socket.Active != "active":
		return f.with(Problem, "holdline.socket is enabled and "+socket.Active,
			"agents cannot connect: no daemon is started besides systemd", "systemctl --user start holdline.socket")
	case !enabled && socket.Active == "active":
		return f.with(Note, "holdline.socket is active and not enabled",
			"after the next login agents start the daemon", "systemctl --user enable holdline.socket")
	case !enabled:
		return f.with(Note, "the units are installed and not enabled",
			"agents start the daemon", "systemctl --user enable --now holdline.socket")
	case daemon.Restarts > 0:
		return f.with(Note,
			fmt.Sprintf("systemd has started the daemon again %d times after it failed (%s)",
				daemon.Restarts, daemon.Result),
			"nothing is lost by that, but it should not happen", "holdline logs")
	}
	return f
}

// checkLinger reports whether the user's systemd outlives the last logout. It does if
// the file at path exists (logind.conf(5)).
func checkLinger(path string) Finding {
	f := Finding{Check: "lingering", State: OK, What: "the daemon goes on when you log out"}
	if _, err := os.Stat(path); err != nil {
		return f.with(Note, "everything ends when you log out: lingering is off for "+filepath.Base(path),
			"systemd ends the daemon at your last logout, and with it consults in the background",
			"loginctl enable-linger")
	}
	return f
}
