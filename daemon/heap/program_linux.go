package heap

import (
	"bufio"
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
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer smaps.Close()
	suffix := []byte(" " + exe)
	var from, to uint64 // the area whose lines follow; to is 0 if it is not of the program or can be written
	// Few of the thousand lines matter. The others must not become garbage of an idle daemon.
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		line := lines.Bytes()
		if bytes.HasPrefix(line, []byte("Anonymous:")) && to > from {
			if f := bytes.Fields(line); len(f) == 3 && string(f[1]) == "0" {
				_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED)
			}
			continue
		}
		area, rest, _ := bytes.Cut(line, []byte(" "))
		first, last, isArea := bytes.Cut(area, []byte("-")) // "00400000-00a67000 r-xp 00000000 fe:01 1234 /path"
		if !isArea {
			continue
		}
		from, to = 0, 0
		if bytes.HasPrefix(rest, []byte("r-")) && bytes.HasSuffix(rest, suffix) {
			from, _ = strconv.ParseUint(string(first), 16, 64)
			to, _ = strconv.ParseUint(string(last), 16, 64)
		}
	}
}
