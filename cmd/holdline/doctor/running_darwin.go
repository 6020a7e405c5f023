package doctor

import (
	"os"

	"golang.org/x/sys/unix"

	"holdline/protocol/process"
)

// running lists the processes of this user. Their environments are not to be
// read here.
func running() []oneProcess {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.uid", os.Getuid())
	if err != nil {
		return nil
	}
	var list []oneProcess
	for i := range all {
		p, err := process.Lookup(int(all[i].Proc.P_pid))
		if err != nil {
			continue
		}
		b, err := unix.SysctlRaw("kern.procargs2", p.PID)
		if err != nil {
			continue
		}
		list = append(list, oneProcess{Proc: p, args: procArgs(b)})
	}
	return list
}
