package doctor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"holdline/protocol/process"
)

// running lists the processes of this user, as far as they can be looked into.
func running() []oneProcess {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var list []oneProcess
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join(dir, "environ")) // only our own can be read
		if err != nil {
			continue
		}
		p, err := process.Lookup(pid)
		if err != nil {
			continue
		}
		one := oneProcess{Proc: p}
		if cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil {
			one.args = strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
		}
		for kv := range strings.SplitSeq(string(environ), "\x00") {
			if dir, ok := strings.CutPrefix(kv, process.EnvWorker+"="); ok {
				one.worker = dir
			} else if home, ok := strings.CutPrefix(kv, "HOME="); ok {
				one.home = home
			}
		}
		list = append(list, one)
	}
	return list
}
