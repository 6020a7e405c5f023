package logfile

import (
	"encoding/binary"
	"os"
	"time"

	"holdline/protocol/ownfile"
)

// A moment says when the bytes of a file were appended that stand there from an offset on.
type moment struct {
	at     int64 // offset in bytes
	unixMS int64
}

// MomentEvery is how close two moments of a file may be.
const MomentEvery = time.Second

// maxMoments bounds how many moments a file has.
const maxMoments = 64 << 10

// momentSize is the length of a moment in its file, in bytes.
const momentSize = 16

// momentsFile returns the path of the file with the moments of the file at path.
func momentsFile(path string) string { return path + ".times" }

// noteMoment records that what follows the offset at is appended now, unless the last moment is
// younger than [MomentEvery] or there are too many. One that cannot be recorded is missing.
func (l *File) noteMoment(at int64) {
	now := time.Now()
	if at > 0 && now.Sub(l.noted).Abs() < MomentEvery {
		return
	}
	flags := os.O_RDWR | os.O_APPEND | os.O_CREATE
	if at == 0 { // these are of the file before
		flags |= os.O_TRUNC
	}
	f, err := ownfile.OpenFile(momentsFile(l.Path), flags)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() >= maxMoments*momentSize {
		return
	}
	if l.noted = now; info.Size() >= momentSize { // another File may have recorded the last one
		last := make([]byte, momentSize)
		_, err := f.ReadAt(last, info.Size()-momentSize)
		if err == nil && now.Sub(time.UnixMilli(readMoment(last).unixMS)).Abs() < MomentEvery {
			return
		}
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(at))
	_, _ = f.Write(binary.BigEndian.AppendUint64(b, uint64(now.UnixMilli())))
}

// readMoment decodes the moment at the beginning of b.
func readMoment(b []byte) moment {
	return moment{at: int64(binary.BigEndian.Uint64(b)), unixMS: int64(binary.BigEndian.Uint64(b[momentSize/2:]))}
}

// A Range is a part of a file, up to the next range, whose first bytes were appended at that time.
// The others followed within [MomentEvery], unless a file has too many ranges.
type Range struct {
	From   int64 // offset in bytes
	UnixMS int64 // 0 if it is not known
}

// Ranges returns the ranges of the file at path with that size, whose [File] is Timed. The first
// begins at 0.
func Ranges(path string, size int64) []Range {
	all := []Range{{}}
	b, err := ownfile.Read(momentsFile(path), maxMoments*momentSize)
	if err != nil {
		return all
	}
	for ; len(b) >= momentSize; b = b[momentSize:] {
		switch m, last := readMoment(b), &all[len(all)-1]; {
		case m.at == last.From:
			last.UnixMS = m.unixMS
		case m.at > last.From && m.at < size:
			all = append(all, Range{From: m.at, UnixMS: m.unixMS})
		}
	}
	return all
}
