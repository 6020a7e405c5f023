package command

import "syscall"

// dieWithParent makes the kernel kill the program when this process ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
