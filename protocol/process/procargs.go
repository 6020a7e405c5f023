package process

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// procArgs returns the arguments in an answer of sysctl kern.procargs2 of macOS. The
// answer has the number of arguments in the machine's byte order, the program's path, zero
// bytes, and the arguments, each with a zero byte behind it. For anything else procArgs
// returns nil.
func procArgs(b []byte) []string {
	if len(b) < 4 {
		return nil
	}
	n := int(binary.NativeEndian.Uint32(b))
	_, rest, ok := bytes.Cut(b[4:], []byte{0})
	if !ok || n < 0 || n > len(rest) {
		return nil
	}
	fields := strings.Split(string(bytes.TrimLeft(rest, "\x00")), "\x00")
	if len(fields) <= n {
		return nil
	}
	return fields[:n]
}
