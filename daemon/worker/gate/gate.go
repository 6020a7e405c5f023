// Package gate stops a stream of lines of which too much is held.
package gate

import "bytes"

// MaxEntries is how many pieces of a stream may be held. Each piece costs memory, however small it
// is.
const MaxEntries = 4096

// Gate stops a stream once Limit bytes or [MaxEntries] entries are held, but only at the
// end of a line. A daemon cannot acknowledge half a line, so a stream that stopped
// inside one would never go on. A line of LineMax bytes stops the stream all the same:
// else a child without newlines would pass any limit. It has no lock of its own.
type Gate struct {
	Limit, LineMax int  // bytes
	Bytes, Count   int  // bytes and entries that are held
	LineLen        int  // bytes since the last newline
	Over           bool // the limit was reached, and not enough released since

	finishing bool // Over, and the line that was begun may still come
}

// NoNewline stands for how many bytes follow the last newline of data without any.
const NoNewline = -1

// BegunLine returns how many bytes follow the last newline of data; [NoNewline] if it has none.
func BegunLine(data []byte) int {
	if n := len(data); n > 0 && data[n-1] == '\n' {
		return 0
	}
	if bytes.IndexByte(data, '\n') < 0 { // many times as fast as LastIndexByte
		return NoNewline
	}
	return len(data) - 1 - bytes.LastIndexByte(data, '\n')
}

// Add counts size bytes of data that are held from now on. It closes the gate if a limit is
// reached, as [Gate] says. begun is BegunLine of the data; newEntry is false if the data was added
// to an entry that is counted already.
func (g *Gate) Add(size, begun int, newEntry bool) {
	g.Bytes += size
	if newEntry {
		g.Count++
	}
	if begun != NoNewline {
		g.LineLen = begun
		g.finishing = false
	} else {
		g.LineLen += size
	}
	if full := g.Bytes >= g.Limit || g.Count >= MaxEntries; full && !g.Over {
		g.Over = true
		g.finishing = g.LineLen > 0
	}
	if g.LineLen >= g.LineMax {
		g.finishing = false
	}
}

// Release subtracts what is no longer held, and opens the gate below its limits.
func (g *Gate) Release(bytes, count int) {
	g.Bytes -= bytes
	g.Count -= count
	if g.Bytes < g.Limit && g.Count < MaxEntries {
		g.Over, g.finishing = false, false
	}
}

// IsOpen reports whether more, or the rest of a line, may come.
func (g *Gate) IsOpen() bool { return !g.Over || g.finishing }
