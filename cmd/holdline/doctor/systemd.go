package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"holdline/contrib"
	"holdline/daemon/service"
)

// install is how the units come to be as they should.
const install = "holdline install --systemd"

// systemd looks at holdline's units of this user's systemd.
func systemd(ctx context.Context, o Options) []Finding {
	socket := o.Units.File(contrib.SystemdSocket)
	switch {
	case !o.Units.Running():
		return nil
	case socket == "":
		return []Finding{{Check: "systemd", State: OK, What: "no units are installed: agents start the daemon"}}
	}
	found := []Finding{files(o.Units, socket)}
	listening, serving, err := o.Units.Ask(ctx)
	if err != nil {
		found = append(found, Finding{
			Check: "systemd state", State: Problem, What: err.Error(), Why: "how the units are is not known", Mend: "systemctl --user status holdline.socket",
		})
	} else if f := unitStates(o.Units.Enabled(), listening, serving); f != nil {
		found = append(found, *f)
	}
	if o.Units.Enabled() {
		found = append(found, linger(o.Linger))
	}
	return found
}

// files compares the units with those that this program would install.
func files(u service.Units, socket string) Finding {
	f := Finding{Check: "systemd units", State: OK, What: socket}
	path := u.File(contrib.SystemdService)
	text, err := os.ReadFile(path)
	switch {
	case path == "":
		f.State, f.What = Problem, "holdline.socket is installed, and holdline.service is not"
		f.Why, f.Mend = "agents connect, and nothing answers", install
		return f
	case err != nil:
		f.State, f.What, f.Why, f.Mend = Problem, err.Error(), "nobody knows which program the unit starts", install
		return f
	}
	bin := program(string(text))
	if err := runnable(bin); err != nil {
		f.State, f.What = Problem, fmt.Sprintf("%s starts %q: %v", path, bin, err)
		f.Why, f.Mend = "the daemon does not start", install+", with the holdline that is to run"
		return f
	}
	units, err := contrib.SystemdUnits(bin)
	if err != nil {
		f.State, f.What, f.Why, f.Mend = Note, fmt.Sprintf("%s: %v", path, err), "this holdline would not write such a unit", install
		return f
	}
	for _, unit := range units {
		path := u.File(unit.Name)
		if text, err := os.ReadFile(path); err != nil || string(text) != unit.Text {
			f.State, f.What = Note, path+" is not as this holdline would write it"
			f.Why, f.Mend = "it is another version's, or was edited (a drop-in is kept: systemctl --user edit "+unit.Name+")", install
			return f
		}
	}
	return f
}

// program is what a service unit starts, "" if it does not say.
func program(text string) string {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart=")
		if !ok {
			continue
		}
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			bin, _, _ := strings.Cut(quoted, `"`)
			return bin
		}
		bin, _, _ := strings.Cut(rest, " ")
		return bin
	}
	return ""
}

// runnable tells why the file at path cannot be run. Paths that only systemd can
// expand are taken for good.
func runnable(path string) error {
	if path == "" {
		return errors.New("no ExecStart=")
	}
	if strings.Contains(path, "%") {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("mode %v, which is no program's", info.Mode())
	}
	return nil
}

// unitStates judges what systemd says of the units; nil is as it should be.
func unitStates(enabled bool, socket, daemon service.UnitState) *Finding {
	f := &Finding{Check: "systemd state", State: Problem}
	switch {
	case socket.Failed() && socket.Result == service.StartLimit:
		f.What = "holdline.service has failed too often in a row, and systemd does not start it any more"
		f.Why, f.Mend = "agents cannot connect", "holdline logs says why; once it is mended: "+service.Reset
	case socket.Failed():
		f.What = fmt.Sprintf("holdline.socket has failed (%s)", socket.Result)
		f.Why, f.Mend = "agents cannot connect", "systemctl --user status holdline.socket says why; once it is mended: "+service.Reset
	case socket.NeedReload || daemon.NeedReload:
		f.State, f.What = Note, "systemd has not read the units since they were changed"
		f.Why, f.Mend = "what they say now is not in force", "systemctl --user daemon-reload; systemctl --user restart holdline.service"
	case enabled && socket.Active != "active":
		f.What = fmt.Sprintf("holdline.socket is enabled and %s", socket.Active)
		f.Why, f.Mend = "agents cannot connect: no daemon is started besides systemd", "systemctl --user start holdline.socket"
	case !enabled && socket.Active == "active":
		f.State, f.What = Note, "holdline.socket is active and not enabled"
		f.Why, f.Mend = "after the next login agents start the daemon", "systemctl --user enable holdline.socket"
	case !enabled:
		f.State, f.What = Note, "the units are installed and not enabled"
		f.Why, f.Mend = "agents start the daemon", "systemctl --user enable --now holdline.socket"
	case daemon.Restarts > 0:
		f.State, f.What = Note, fmt.Sprintf("systemd has started the daemon again %d times after it failed (%s)", daemon.Restarts, daemon.Result)
		f.Why, f.Mend = "nothing is lost by that, but it should not happen", "holdline logs"
	default:
		return nil
	}
	return f
}

// linger tells whether the user's systemd outlives the last logout. path is the
// file by which that is known (logind.conf(5)).
func linger(path string) Finding {
	f := Finding{Check: "lingering", State: OK, What: "the daemon goes on when you log out"}
	if _, err := os.Stat(path); err != nil {
		f.State, f.What = Note, "everything ends when you log out: lingering is off for "+filepath.Base(path)
		f.Why, f.Mend = "systemd ends the daemon at your last logout, and with it consults in the background", "loginctl enable-linger"
	}
	return f
}
