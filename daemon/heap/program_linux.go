package heap

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// residentProgram returns how much memory the pages of files take in this process, in bytes;
// 0 if that is not known. The program is the only file that a daemon maps.
func residentProgram() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	f := bytes.Fields(b) // size resident shared …, in pages
	if err != nil || len(f) < 3 {
		return 0
	}
	pages, err := strconv.ParseUint(string(f[2]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// releaseProgram takes the pages of the program's code and constants out of this process. They
// stay in the kernel's cache of files, from which those that are used again come back, many at
// once: that takes a busy daemon less than a millisecond in all.
//
// Areas with a page that is not as it is in the file are left alone. A debugger may have set a
// breakpoint there.
func releaseProgram() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	var from, to uint64 // the area whose lines follow; to is 0 if it is not of the program or can be written
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) == 0 {
			continue
		}
		if first, last, ok := bytes.Cut(f[0], []byte("-")); ok { // "00400000-00a67000 r-xp 00000000 fe:01 1234 /path"
			from, to = 0, 0
			if len(f) >= 6 && bytes.HasPrefix(f[1], []byte("r-")) && bytes.HasSuffix(line, []byte(" "+exe+"\n")) {
				from, _ = strconv.ParseUint(string(first), 16, 64)
				to, _ = strconv.ParseUint(string(last), 16, 64)
			}
		}
		if to > from && string(f[0]) == "Anonymous:" && len(f) == 3 && string(f[1]) == "0" {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED)
		}
	}
}
