package console

import (
	"os"

	"golang.org/x/sys/unix"
)

// ForgetTyped drops what the user has typed at a terminal and no program has read, so that it
// does not answer a question that was not yet asked. It does nothing elsewhere.
func ForgetTyped(v any) {
	if f, ok := v.(*os.File); ok && IsTerminal(v) {
		_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	}
}
