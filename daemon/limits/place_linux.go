package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"holdline/daemon/waiting"
	"holdline/protocol/process"
)

// Times of the user manager.
const (
	managerTimeout = 6 * time.Second // without an answer the worker has no limits; three were too few on a busy machine
	pollPause      = 5 * time.Millisecond
)

// Place puts the process pid, which is to become the worker with that id, into a control group
// of its own with the limits b. What it starts later is in the group, too. It returns the
// RLIMIT_DATA of the worker's child, in bytes, or 0 if the group holds its memory or need not.
//
// The error says why there is no group. It does not keep the worker from being started.
func (p Placer) Place(ctx context.Context, pid int, id string, b *process.Bounds) (data int64, err error) {
	err = p.makeScope(ctx, pid, prefix+id+".scope", b)
	if err != nil {
		if gerr := makeGroup(pid, prefix+id, b); gerr == nil {
			err = nil
		} else {
			err = errors.Join(err, gerr)
		}
	}
	if GroupOf(pid, id).Held(b).by["memory"] == byRlimit {
		data = b.Memory
	}
	return data, err
}

// Properties of units and of the manager.
const (
	systemd   = "org.freedesktop.systemd1"
	unknown   = "org.freedesktop.DBus.Error.PropertyReadOnly" // what this version of systemd says to a new property
	oomPolicy = "OOMPolicy"
)

// property is a property of a unit.
type property struct {
	Name  string
	Value dbus.Variant
}

// makeScope has the user manager make a scope with the process in it.
func (p Placer) makeScope(ctx context.Context, pid int, name string, b *process.Bounds) error {
	if _, err := os.Stat(p.Manager); err != nil {
		return fmt.Errorf("no systemd for this user: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, managerTimeout)
	defer cancel()
	// The manager's own socket needs no bus, and no greeting of one.
	conn, err := dbus.Dial("unix:path="+dbus.EscapeBusAddressValue(p.Manager), dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	properties := []property{
		{"Description", dbus.MakeVariant("Holdline's worker " + strings.TrimSuffix(name, ".scope"))},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(pid)})},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
		{oomPolicy, dbus.MakeVariant("continue")},
	}
	for _, k := range kinds {
		if n := k.value(b); n > 0 {
			properties = append(properties, property{k.property, dbus.MakeVariant(uint64(n))})
		}
	}
	if b.Memory > 0 { // else the limit were one of memory without swap
		properties = append(properties, property{"MemorySwapMax", dbus.MakeVariant(uint64(0))})
	}
	var job dbus.ObjectPath
	start := func() error {
		return conn.Object(systemd, "/org/freedesktop/systemd1").CallWithContext(ctx,
			systemd+".Manager.StartTransientUnit", 0, name, "fail", properties, []struct {
				Name       string
				Properties []property
			}{}).Store(&job)
	}
	err = start()
	if e, ok := errors.AsType[dbus.Error](err); ok && e.Name == unknown {
		// Before systemd 253 scopes have no such property, and go on by themselves.
		properties = slices.DeleteFunc(properties, func(p property) bool { return p.Name == oomPolicy })
		err = start()
	}
	for err == nil { // until the job is gone
		if _, jerr := conn.Object(systemd, job).GetProperty(systemd + ".Job.State"); jerr != nil {
			break
		}
		err = waiting.Pause(ctx, pollPause)
	}
	if err != nil {
		return fmt.Errorf("systemd: scope %s: %w", name, err)
	}
	return nil
}

// makeGroup makes a control group of version 2 with the process in it. It has all limits, or at
// least that of memory.
func makeGroup(pid int, name string, b *process.Bounds) error {
	errs := []error{errors.New("no cgroup that this process may divide")}
	for _, parent := range parents() {
		err := divide(parent, pid, name, b)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// divide makes a control group below parent.
func divide(parent string, pid int, name string, b *process.Bounds) (err error) {
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o750); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(dir)
		}
	}()
	put := func(file, value string) error { return os.WriteFile(file, []byte(value), 0) }
	var missing []string
	var why error
	held := false
	for _, k := range kinds {
		n := k.value(b)
		if n == 0 {
			continue
		}
		_ = put(filepath.Join(parent, "cgroup.subtree_control"), "+"+k.controller) // it may be there already
		if err := put(filepath.Join(dir, k.limit[0]), strconv.FormatInt(n, 10)); err != nil {
			missing, why = append(missing, k.controller), cmp.Or(why, err)
		} else if k.controller == "memory" || b.Memory == 0 {
			held = true
		}
	}
	if !held {
		return fmt.Errorf("%s does not limit %s: %w", parent, strings.Join(missing, ", "), why)
	}
	if b.Memory > 0 { // there is no such file without swap
		_ = put(filepath.Join(dir, "memory.swap.max"), "0")
	}
	return put(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
}

// parents returns the control groups of version 2 that this process may divide, as far as their
// owner is concerned: its own one, and those above. Where systemd runs, these are only the ones
// that it has handed over.
func parents() []string {
	m, ok := mounts()[unified]
	own := directories(os.Getpid())[unified]
	if !ok || own == "" {
		return nil
	}
	var all []string
	for dir := own; ; dir = filepath.Dir(dir) {
		all = append(all, dir)
		if isDelegated(dir) {
			return all
		}
		if dir == m.at || len(dir) < len(m.at) {
			break
		}
	}
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		return nil
	}
	return all
}

// isDelegated reports whether systemd has handed over a control group, with all that is below
// it (systemd's CGROUP_DELEGATION).
func isDelegated(dir string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		var value [1]byte
		if n, err := unix.Getxattr(dir, name, value[:]); err == nil && n == 1 && value[0] == '1' {
			return true
		}
	}
	return false
}

// Remove removes the control group of the worker with that id, which must be dead. Scopes go by
// themselves.
func Remove(id string) {
	for _, parent := range parents() {
		_ = os.Remove(filepath.Join(parent, prefix+id)) // mostly there is none
	}
}
