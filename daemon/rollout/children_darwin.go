package rollout

import "golang.org/x/sys/unix"

// children returns the children of pid, including those that have ended and were not
// waited for.
func children(pid int) []int {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	var found []int
	for _, k := range all {
		if int(k.Eproc.Ppid) == pid {
			found = append(found, int(k.Proc.P_pid))
		}
	}
	return found
}
