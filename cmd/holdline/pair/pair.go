// Package pair knows the two programs of holdline, which lie in one directory: holdline
// itself, and holdline-stdio, which is its commands mcp-stdio and worker alone. Many proxies
// and workers run at the same time, and holdline-stdio takes half the memory.
//
// [BecomeSmall] makes `holdline mcp-stdio` that program, and [BecomeSmallWorker] makes
// `holdline worker` that program, if both are of one build. An upgrade replaces one file
// before the other. Between the two, and without holdline-stdio, holdline does the work
// itself.
//
// Both programs link this package, so it imports little.
package pair

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Names of the files.
const (
	Whole = "holdline"
	Small = "holdline-stdio"
	Top   = "holdline-top" // a third one, which `holdline top` becomes
)

// Commands that both programs have. Flags follow them.
const (
	Command = "mcp-stdio"
	Worker  = "worker"
)

// EnvWhole is the variable with the path of holdline in a worker that runs holdline-stdio.
const EnvWhole = "HOLDLINE_WHOLE"

// BecomeSmall makes this process holdline-stdio, with the same arguments, environment and
// streams, and the same pid. args are the arguments behind [Command]. It returns if that
// program is not there, is of another build or cannot be executed, or if args need the
// whole program. Then the caller does the work.
func BecomeSmall(args []string) {
	_, small := programs()
	if small == "" || needsWhole(args) {
		return
	}
	program, err := Program(os.Args[0])
	if err != nil {
		return
	}
	_ = syscall.Exec(small, append([]string{program, Command}, args...), os.Environ())
}

// BecomeSmallWorker makes this process holdline-stdio as [BecomeSmall] does, for the command
// [Worker], and sets [EnvWhole]. On Linux that is the path of a descriptor, which stays open:
// the file may be replaced before the worker starts its child.
func BecomeSmallWorker() {
	exe, small := programs()
	if small == "" {
		return
	}
	if fd, err := syscall.Open(running, syscall.O_RDONLY, 0); err == nil {
		exe = "/proc/self/fd/" + strconv.Itoa(fd)
		defer func() { _ = syscall.Close(fd) }() // it goes on as it is
	}
	_ = syscall.Exec(small, os.Args, append(os.Environ(), EnvWhole+"="+exe))
}

// running is a path of the file that this process runs, which may have been replaced. Only
// Linux has one.
const running = "/proc/self/exe"

// programs returns the path of the file from which this process was started, and that of the
// holdline-stdio beside it. small is "" if there is none of the same build, or if this process
// is that program.
func programs() (exe, small string) {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil || filepath.Base(exe) == Small { // it is that program, under another name
		return "", ""
	}
	small = filepath.Join(filepath.Dir(exe), Small)
	if id := cmp.Or(BuildID(running), BuildID(exe)); id == "" || BuildID(small) != id {
		return "", ""
	}
	return exe, small
}

// SmallOf returns the path of the holdline-stdio that `holdline mcp-stdio` becomes if it is
// started by path. It lies beside the file to which the links of path lead, is of the same
// build and can be executed. The error says why there is none.
func SmallOf(path string) (string, error) {
	exe, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	small := filepath.Join(filepath.Dir(exe), Small)
	info, err := os.Stat(small)
	switch id := BuildID(exe); {
	case err != nil:
		return "", fmt.Errorf("%s is missing", small)
	case id == "" || BuildID(small) != id:
		return "", fmt.Errorf("%s is not of the same build as %s", small, exe)
	case info.Mode().Perm()&0o111 == 0:
		return "", fmt.Errorf("%s cannot be executed", small)
	}
	return small, nil
}

// BecomeWhole makes this process `holdline mcp-stdio`, for arguments that need the whole
// program. It returns only if that fails. program is the path of holdline.
func BecomeWhole(program string, args []string) error {
	err := syscall.Exec(program, append([]string{program, Command}, args...), os.Environ())
	return fmt.Errorf("%s cannot be executed: %w", program, err)
}

// needsWhole reports whether one of args asks for what holdline-stdio cannot do: to show
// help, or to become a server. It may also be true for a value that looks like such a flag.
func needsWhole(args []string) bool {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		if name != arg && (name == "h" || name == "help" || name == "direct") {
			return true
		}
	}
	return false
}

// OfSmall returns the path of holdline and the arguments behind [Command], for a process
// that runs holdline-stdio. argv is its command line: one of [BecomeSmall], or one that
// names holdline-stdio, with or without [Command]. Then holdline lies beside it.
func OfSmall(argv []string) (program string, args []string, err error) {
	args = argv[1:]
	if len(args) > 0 && args[0] == Command {
		args = args[1:]
		if filepath.IsAbs(argv[0]) && filepath.Base(argv[0]) != Small {
			return argv[0], args, nil
		}
	}
	path, err := Program(argv[0])
	return filepath.Join(filepath.Dir(path), Whole), args, err
}

// Program returns the path of this program as it was called, links kept: package
// managers put a new version behind the same link. If argv0 leads to some other
// program, it returns the path of the running file.
func Program(argv0 string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	if path, ok := CalledAs(argv0, exe); ok {
		return path, nil
	}
	return exe, nil
}

// CalledAs returns the path that argv0 names, and whether it leads to the program exe
// or to a newer version of it.
func CalledAs(argv0, exe string) (string, bool) {
	path, err := exec.LookPath(argv0)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", false
	}
	there, err := os.Stat(path)
	if err != nil {
		return "", false
	}
	// After an upgrade the link leads to another file of the same name.
	here, err := os.Stat(exe)
	return path, err != nil || os.SameFile(here, there) || filepath.Base(path) == filepath.Base(exe)
}

// headSize is how much of a program [BuildID] reads, in bytes. The Go linker puts the
// build id at the beginning.
const headSize = 32 << 10

// BuildID returns the id that the linker was given for the program at path, or "" if the
// file has none or cannot be read. It does not run the program.
func BuildID(path string) string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "" // opening a named pipe would block
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, headSize)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ""
	}
	return findID(head[:n])
}

// What stands before and after the id.
var (
	noteELF   = []byte("\x04\x00\x00\x00Go\x00\x00") // type and name of a note; its length stands before
	beginMach = []byte("\xff Go build ID: \"")       // in the text segment
	endMach   = []byte("\"\n \xff")
)

// findID returns the build id in the beginning of a program for Linux or macOS.
func findID(head []byte) string {
	if at := bytes.Index(head, noteELF); at >= 4 {
		size, from := binary.LittleEndian.Uint32(head[at-4:]), at+len(noteELF)
		if uint64(size) > uint64(len(head)-from) {
			return ""
		}
		return string(head[from : from+int(size)])
	}
	_, rest, _ := bytes.Cut(head, beginMach)
	id, _, ok := bytes.Cut(rest, endMach)
	if !ok {
		return ""
	}
	return string(id)
}
