package command

import "syscall"

// dieWithParent does nothing: macOS has no such signal. The program's time is
// bounded by the process that runs it, while that lives.
func dieWithParent(*syscall.SysProcAttr) {}
