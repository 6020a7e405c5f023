// Package limits holds hosted servers to what they may use of the machine: memory,
// processes, and a share of the processor.
//
// A worker is put into a control group of its own before it starts its child, so all that
// the child ever starts is in the group, too. If the server uses too much memory, the kernel
// kills one of the processes of that group, and nothing else. [Placer.Place] takes the first
// way that the machine has:
//
//   - a transient scope of systemd's user manager,
//   - a group in a part of the tree of cgroup version 2 that this process may change,
//   - RLIMIT_DATA of each process, which the exec step sets. It limits memory alone.
//
// What holds a limit in the end is not concluded from the way, but read from the files of the
// group: see [Group.Held]. On macOS nothing holds a limit.
package limits

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"holdline/daemon/command"
	"holdline/daemon/plural"
	"holdline/protocol/process"
)

// Placer puts workers into control groups.
type Placer struct {
	// Manager is the path of the socket of systemd's user manager, which need not exist.
	Manager string
}

// For returns the Placer of a process with that environment.
func For(environ []string) Placer {
	if dir := command.Variable(environ, "XDG_RUNTIME_DIR"); dir != "" {
		return Placer{Manager: filepath.Join(dir, "systemd/private")}
	}
	return Placer{}
}

// Try puts a process that only sleeps into a control group, with all limits, and returns by
// what they are held. The error says why there is no group.
func (p Placer) Try() (Held, error) {
	b := &process.Bounds{Memory: 256 << 20, Processes: 1000, CPUWeight: 99}
	ctx, cancel := context.WithTimeout(context.Background(), tryTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sleep", "60")
	if err := cmd.Start(); err != nil {
		return (*Group)(nil).Held(b), fmt.Errorf("limits cannot be tried: %w", err)
	}
	id := fmt.Sprintf("try-%d", cmd.Process.Pid)
	_, err := p.Place(ctx, cmd.Process.Pid, id, b)
	held := GroupOf(cmd.Process.Pid, id).Held(b)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	Remove(id)
	return held, err
}

// tryTimeout is how long [Placer.Try] may take, longer than the user manager has.
const tryTimeout = 15 * time.Second

// prefix begins the names of all control groups of workers.
const prefix = "holdline-"

// kind is a kind of limit, with the controller that holds it and the files of a control group
// that are about it, in version 2 and in version 1.
type kind struct {
	name       string // for people
	controller string
	limit      []string // files with the limit
	events     []string // files with a counter of how often the limit was reached
	counter    string
	property   string // of a scope of systemd
	value      func(b *process.Bounds) int64
	words      func(n int64) string // of a limit that was reached; nil for none that can be
}

// kinds are all kinds of limits.
var kinds = []kind{
	{
		name: "memory", controller: "memory", property: "MemoryMax",
		limit:  []string{"memory.max", "memory.limit_in_bytes"},
		events: []string{"memory.events", "memory.oom_control"}, counter: "oom_kill",
		value: func(b *process.Bounds) int64 { return b.Memory },
		words: func(n int64) string { return "memory limit of " + plural.Size(n).String() },
	},
	{
		name: "processes", controller: "pids", property: "TasksMax",
		limit: []string{"pids.max"}, events: []string{"pids.events"}, counter: "max",
		value: func(b *process.Bounds) int64 { return int64(b.Processes) },
		words: func(n int64) string { return "limit of " + plural.Count(int(n), "process") },
	},
	{
		name: "CPU weight", controller: "cpu", property: "CPUWeight",
		limit: []string{"cpu.weight"},
		value: func(b *process.Bounds) int64 { return int64(b.CPUWeight) },
	},
}

// Words returns the limits b for people: "memory 2GiB, processes 200".
func Words(b *process.Bounds) string {
	var words []string
	for _, k := range kinds {
		if n := k.value(b); n == 0 {
			continue
		} else if k.controller == "memory" {
			words = append(words, k.name+" "+plural.Size(n).String())
		} else {
			words = append(words, fmt.Sprintf("%s %d", k.name, n))
		}
	}
	return strings.Join(words, ", ")
}

// Held says by what each limit is held.
type Held struct {
	by    map[string]string // words by the name of a kind; "" is nothing
	Whole bool              // all limits are held for the server as a whole
}

// nothing is what holds a limit that is not held.
const nothing = "nothing"

// String returns for people by what each limit is held, as "memory and processes by a systemd
// scope; CPU weight by nothing".
func (h Held) String() string {
	var order []string
	names := map[string][]string{}
	for _, k := range kinds {
		if by, ok := h.by[k.name]; ok {
			by = cmp.Or(by, nothing)
			if names[by] == nil {
				order = append(order, by)
			}
			names[by] = append(names[by], k.name)
		}
	}
	for i, by := range order {
		order[i] = strings.Join(names[by], " and ") + " by " + by
	}
	return strings.Join(order, "; ")
}
