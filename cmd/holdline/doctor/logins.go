package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/config/resolve"
	"holdline/daemon/launch"
	"holdline/daemon/login"
	"holdline/daemon/login/flow"
	"holdline/daemon/redact"
	"holdline/daemon/shellword"
	"holdline/daemon/spelling"
	"holdline/daemon/statedir"
)

// Limits from which on something about logins is noted.
const (
	longLock  = time.Minute
	wrongTime = 2 * time.Minute // between the clocks of this machine and of an authorization server
)

// checkLogins checks the logins of remote servers, from their files alone: it asks no server.
func checkLogins(o Options) []Finding {
	if o.Loaded == nil || o.StateDir == "" {
		return nil
	}
	dir := statedir.In(o.StateDir).Logins
	store := launch.Logins{Dir: dir, KeyCommand: o.Loaded.Logins.KeyCommand}.Open(o.Environ)
	var found []Finding
	add := func(check string, state State, what, why, fix string) {
		found = append(found, Finding{Check: check, State: state, What: what, Why: why, Fix: fix})
	}
	for _, path := range openFiles(dir) {
		add("logins", Problem, path+" can be read or changed by other users",
			"it holds logins: whoever reads it can use your servers, and Holdline refuses it",
			"chmod -R go= "+shellword.Quote(dir))
	}
	if len(o.Loaded.Logins.KeyCommand) > 0 {
		key := login.NewKey(o.Loaded.Logins.KeyCommand, resolve.Environment(config.InheritCore, o.Environ, nil))
		if err := key.Check(); err != nil {
			add("key of logins", Problem, "each login "+err.Error(),
				"servers that want a login cannot be used; nothing is lost",
				"run the command of logins.key_command yourself: it has to print 64 hexadecimal digits")
		}
	}
	used, people := map[string]bool{}, false
	for _, name := range spelling.Sorted(maps.Keys(o.Loaded.Servers)) {
		s, _ := o.Loaded.Server(name)
		if !s.Enabled || !s.LogsIn() {
			continue
		}
		from := launch.Start{Config: o.Config, Home: o.Home, Environ: o.Environ}
		id, err := from.Target(&s)
		if err != nil {
			continue // another check says what the entry lacks
		}
		machine := s.OAuth.Grant == config.GrantMachine
		used[id], people = true, people || !machine && s.OAuth.RedirectURI == ""
		status, _ := store.Status(id, machine)
		words, fix := launch.ShowLogin(store, id, machine).Words(name)
		switch {
		case words == "":
		case status.State == login.StateNeeds:
			add("login of "+name, Problem, words, "calls of its tools fail", "holdline servers login "+name)
		case fix != "":
			add("login of "+name, Note, words, "some calls of its tools fail", fix)
		case status.State == login.StateFailing:
			add("login of "+name, Note, words, "calls fail once the login has run out",
				"see: holdline servers logs "+name)
		default:
			add("login of "+name, OK, words, "", "")
		}
		if skew := status.ClockSkew; skew.Abs() > wrongTime {
			add("clock", Note, fmt.Sprintf("the clock of %s differs by %v from that of this machine", status.Issuer,
				skew.Round(time.Second)), "logins may be renewed too late",
				"set the clock of this machine: timedatectl set-ntp true")
		}
	}
	if len(o.Loaded.Unusable()) == 0 { // else one may be of a server whose entry cannot be read
		found = append(found, unusedLogins(store, used)...)
	}
	found = append(found, longLocks(dir)...)
	getenv := func(name string) string { return command.Variable(o.Environ, name) }
	browser := o.Loaded.Logins.Browser
	if people && browser != "none" && flow.HasBrowser(getenv) && flow.Opener(browser, getenv) == nil {
		add("browser", Note, "no program is found that opens a browser",
			"a login only prints its address, for you to open",
			"name a program in logins.browser, or none if that is how you want it")
	}
	if people && !slices.ContainsFunc(o.Loaded.Logins.CallbackPorts(), canListen) {
		add("ports of logins", Note, fmt.Sprintf("other programs listen at all of %v", o.Loaded.Logins.CallbackPorts()),
			"a login by a browser may be refused, since the browser has to come back to one of them",
			"end one of these programs, or name free ports in logins.ports")
	}
	return found
}

// openFiles returns what in the directory of logins other users can read or change, or own.
func openFiles(dir string) (found []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what is not there is not open
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if info.Mode().Perm()&0o077 != 0 || ok && int(st.Uid) != os.Geteuid() {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// unusedLogins returns a finding for each login that no configured server uses.
func unusedLogins(store *login.Store, used map[string]bool) (found []Finding) {
	ids, _ := store.IDs(&login.Target{}) // what cannot be listed has a finding of its own
	for _, id := range ids {
		var t login.Target
		if used[id] || store.Read(id, &t) != nil || t.Login == "" {
			continue
		}
		address := redact.URL(t.URL)
		found = append(found, Finding{
			Check: "unused login", State: Note, What: "no server uses the login to " + address,
			Why: "its tokens are kept, and may still be good", Fix: "holdline servers logout --url " + address,
		})
	}
	return found
}

// longLocks returns a finding for each lock of a login that a process holds for long.
func longLocks(dir string) (found []Finding) {
	paths, _ := filepath.Glob(filepath.Join(dir, "*.lock"))
	more, _ := filepath.Glob(filepath.Join(dir, "*", "*.lock"))
	for _, path := range append(paths, more...) {
		info, err := os.Stat(path) // it is written when the lock is taken
		if err != nil || time.Since(info.ModTime()) < longLock {
			continue
		}
		lock, err := statedir.TryLock(path)
		if err == nil {
			_ = lock.Unlock()
		}
		if !errors.Is(err, statedir.ErrLocked) {
			continue
		}
		found = append(found, Finding{
			Check: "lock of a login", State: Problem,
			What: fmt.Sprintf("%s has held the lock %s for %v", statedir.WhoHolds(path), path,
				time.Since(info.ModTime()).Round(time.Second)),
			Why: "no process can renew that login meanwhile", Fix: "if that goes on, kill that process",
		})
	}
	return found
}

// canListen reports whether a browser could come back to a port of this machine.
func canListen(port int) bool {
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", at)
	if err == nil {
		_ = l.Close()
	}
	return err == nil
}
