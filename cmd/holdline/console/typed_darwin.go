package console

import (
	"os"

	"golang.org/x/sys/unix"
)

// ForgetTyped drops what the user has typed at a terminal and no program has read, so that it
// does not answer a question that was not yet asked. It does nothing elsewhere.
func ForgetTyped(v any) {
	const read = 1 // FREAD of <sys/fcntl.h>
	if f, ok := v.(*os.File); ok && IsTerminal(v) {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCFLUSH, read)
	}
}
