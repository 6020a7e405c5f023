package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdline/protocol/ownfile"
)

// FileTaken is in a worker's directory: the last write that the worker has taken. The worker has it
// mapped, so that each write costs a store in memory and the file survives the worker.
//
// The directory here of a worker on another machine has such a file, too: of the daemon, with the last write that was
// recorded for the worker since it said what it has taken.
//
// The file is one page. It holds the number twice, in words that bear the directory's name by a
// checksum: what was damaged, or is another directory's, is noticed.
const FileTaken = "taken"

// takenSize is the size of the file, and takenAt are the places of the two words in it.
const takenSize = 4096

var takenAt = [2]int{0, takenSize / 2}

// errTaken says that no word of the file is whole.
var errTaken = errors.New("it does not say which write was taken last")

// Taken is the file of a worker that lives. Its methods must not be called at the same time.
type Taken struct {
	page []byte
	name string
}

// NewTaken makes the file in the worker directory dir, for a worker that has taken nothing.
func NewTaken(dir string) (*Taken, error) {
	path := filepath.Join(dir, FileTaken)
	t := &Taken{name: filepath.Base(dir)}
	f, err := ownfile.Create(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, takenSize)
	for _, at := range takenAt {
		binary.NativeEndian.PutUint64(b[at:], takenWord(t.name, 0))
	}
	if _, err = f.Write(b); err == nil { // so that the page has its room
		t.page, err = unix.Mmap(int(f.Fd()), 0, takenSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), os.Remove(path))
	}
	return t, nil
}

// OpenTaken opens the file that an earlier process has made in the worker directory dir. If there is none, or none
// that can be believed, it makes one for a worker that has taken write n.
func OpenTaken(dir string, n int64) (*Taken, error) {
	if _, err := ReadTaken(dir); err != nil {
		t, err := NewTaken(dir)
		if err == nil {
			t.Set(n)
		}
		return t, err
	}
	f, err := ownfile.OpenFile(filepath.Join(dir, FileTaken), os.O_RDWR)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	t := &Taken{name: filepath.Base(dir)}
	if t.page, err = unix.Mmap(int(f.Fd()), 0, takenSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return t, nil
}

// Close ends the use of the file, which stays. A nil t has none.
func (t *Taken) Close() {
	if t != nil && t.page != nil {
		_ = unix.Munmap(t.page)
		t.page = nil
	}
}

// Set records that write n is taken. It does not block. A nil t records nothing. Once the file was cut short it does nothing
// any more: the daemon that reads the file then notices that.
func (t *Taken) Set(n int64) {
	if t == nil || t.page == nil {
		return
	}
	before := debug.SetPanicOnFault(true) // a store behind the end of a file is a fault
	defer func() {
		debug.SetPanicOnFault(before)
		if recover() != nil {
			t.page = nil
		}
	}()
	word := takenWord(t.name, n)
	for _, at := range takenAt {
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&t.page[at])), word) //nolint:gosec // a place in the page, which is aligned
	}
}

// takenWord returns the word for write n of the directory name: n, and 24 bits of a checksum.
func takenWord(name string, n int64) uint64 {
	sum := crc32.Checksum([]byte(name), takenTable())
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	sum = crc32.Update(sum, takenTable(), b[:])
	return uint64(n)<<24 | uint64(sum>>8)
}

// takenTable returns the table of the checksums. A proxy, which is small, never needs it.
var takenTable = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// ReadTaken returns the last write that the worker of the directory dir has taken. While the worker
// lives it may take more. It returns an error if the file cannot be read, does not exist, or holds
// no number of this directory's.
func ReadTaken(dir string) (int64, error) {
	path := filepath.Join(dir, FileTaken)
	b, err := ownfile.Read(path, takenSize)
	if err != nil {
		return 0, err
	}
	taken := int64(-1)
	for _, at := range takenAt {
		if at+8 > len(b) {
			continue
		}
		word := binary.NativeEndian.Uint64(b[at:])
		if n := int64(word >> 24); word == takenWord(filepath.Base(dir), n) {
			taken = max(taken, n)
		}
	}
	if taken < 0 {
		return 0, fmt.Errorf("%s: %w", path, errTaken)
	}
	return taken, nil
}
