package command

import "syscall"

// dieWithParent does nothing: macOS has no such signal. The program's time is
// bounded by whoever runs it, as long as that lives.
func dieWithParent(*syscall.SysProcAttr) {}
