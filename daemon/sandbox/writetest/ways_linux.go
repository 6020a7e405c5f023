package writetest

import (
	"os"

	"golang.org/x/sys/unix"
)

// peculiar returns the ways that only this system has.
func peculiar(in, mine func(string) string) []way {
	return []way{
		{"exchange two files", func() error {
			return unix.Renameat2(unix.AT_FDCWD, in(kept), unix.AT_FDCWD, mine(kept), unix.RENAME_EXCHANGE)
		}},
		{"make a file without a name", func() error { return open(in("."), unix.O_TMPFILE|os.O_WRONLY, "x") }},
	}
}
