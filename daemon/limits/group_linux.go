package limits

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"holdline/protocol/process"
)

// Group is the control group of a worker. A nil Group is none.
type Group struct {
	dirs map[string]string // directory by controller, where that is mounted
	by   string            // what made it, for people
}

// unified stands for the hierarchy of version 2 among controllers.
const unified = ""

// GroupOf returns the control group of the worker with that id and pid. It returns nil if the
// worker is in none of its own.
func GroupOf(pid int, id string) *Group {
	g := &Group{dirs: directories(pid), by: "a cgroup"}
	own := false
	for _, dir := range g.dirs {
		switch filepath.Base(dir) {
		case prefix + id + ".scope":
			own, g.by = true, "a systemd scope"
		case prefix + id:
			own = true
		}
	}
	if !own {
		return nil
	}
	return g
}

// directories returns the directories of the control groups of a process, by controller.
func directories(pid int) map[string]string {
	f, err := os.Open(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil
	}
	defer f.Close()
	mounted := mounts()
	dirs := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		_, rest, _ := strings.Cut(lines.Text(), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		for controller := range strings.SplitSeq(controllers, ",") {
			if m, ok := mounted[controller]; ok {
				dirs[controller] = filepath.Join(m.at, strings.TrimPrefix(path, m.root))
			}
		}
	}
	return dirs
}

// mount is where a hierarchy of control groups is mounted, and which of its groups is there.
type mount struct{ at, root string }

// mounts returns the mounts of control groups, by controller.
func mounts() map[string]mount {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close()
	found := map[string]mount{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		own, kind := strings.Fields(before), strings.Fields(after)
		if len(own) < 5 || len(kind) < 3 || !strings.HasPrefix(kind[0], "cgroup") {
			continue
		}
		m := mount{at: own[4], root: strings.TrimSuffix(own[3], "/")}
		if kind[0] == "cgroup2" {
			found[unified] = m
			continue
		}
		for option := range strings.SplitSeq(kind[2], ",") {
			found[option] = m
		}
	}
	return found
}

// file returns the path of a file of the group that one of a controller's names has, or "".
func (g *Group) file(controller string, names []string) string {
	for _, dir := range []string{g.dirs[controller], g.dirs[unified]} {
		for _, name := range names {
			path := filepath.Join(dir, name)
			if _, err := os.Stat(path); dir != "" && err == nil {
				return path
			}
		}
	}
	return ""
}

// byRlimit is what holds the memory of a worker whose group does not: [Placer.Place] returned
// its RLIMIT_DATA.
const byRlimit = "RLIMIT_DATA, for each process alone"

// Held returns by what the limits b of the worker are held.
func (g *Group) Held(b *process.Bounds) Held {
	h := Held{by: map[string]string{}, Whole: true}
	for _, k := range kinds {
		want := k.value(b)
		if want == 0 {
			continue
		}
		h.by[k.name] = ""
		if g != nil {
			text, _ := os.ReadFile(g.file(k.controller, k.limit))
			// The kernel may round a size down, to whole pages.
			is, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && is <= want && (k.words != nil || is == want) {
				h.by[k.name] = g.by
				continue
			}
		}
		h.Whole = false
		if k.controller == "memory" {
			h.by[k.name] = byRlimit
		}
	}
	return h
}

// Reached returns in words which of the limits b was reached since the worker started: the
// kernel killed one of its processes, or refused it another one. It returns "" if none was, if b
// is nil, or if the group does not exist any more.
func (g *Group) Reached(b *process.Bounds) string {
	for _, k := range kinds {
		if g == nil || b == nil || k.words == nil || k.value(b) == 0 {
			continue
		}
		text, _ := os.ReadFile(g.file(k.controller, k.events))
		for line := range strings.Lines(string(text)) {
			if count, ok := strings.CutPrefix(line, k.counter+" "); ok && strings.TrimSpace(count) != "0" {
				return k.words(k.value(b))
			}
		}
	}
	return ""
}
