package workdirs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"holdline/protocol/bulk"
	"holdline/protocol/process"
)

// Bytes of spools that are fetched from other machines and not read yet: of one host, and of all.
const (
	maxSpoolsOfHost = 512 << 20
	maxSpools       = 1 << 30
)

// errSpoolTooLong says that a host names a spool that no worker there can have made.
var errSpoolTooLong = errors.New("it is longer than it may be")

// errSpoolsFull says that there is no room for a spool now.
var errSpoolsFull = errors.New("too much output of ended servers on other machines waits to be read here")

// fetch is a spool that is being fetched.
type fetch struct {
	host string
	size int64
}

// takeSpool makes sure that there is room here for the spool of the worker of dir, which a host says has
// so many bytes. The host may lie. The caller must call done once the spool has come, or has not.
func (d *Dirs) takeSpool(host, dir string, size int64) (done func(), err error) {
	spec, _ := process.ReadSpec(dir)
	spec.SetDefaults()
	if most := spec.Orphan.SpoolMax + int64(spec.Limits.Retain+spec.Limits.Line); size > most {
		return nil, fmt.Errorf("%w: %d bytes, and the most are %d", errSpoolTooLong, size, most)
	}
	if err := bulk.HasRoomFor(dir, size); err != nil {
		return nil, err
	}
	dirs, err := d.ServerDirs()
	if err != nil {
		return nil, err
	}
	there := map[string]fetch{}
	for _, other := range dirs {
		if spec, err := process.ReadSpec(other); err == nil && spec.Far != nil && other != dir {
			if info, err := os.Lstat(filepath.Join(other, process.FileSpool)); err == nil {
				there[other] = fetch{spec.Far.Host, info.Size()}
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.Copy(there, d.fetching) // of one that is being fetched, all counts
	of, all := size, size
	for _, f := range there {
		all += f.size
		if f.host == host {
			of += f.size
		}
	}
	if of > maxSpoolsOfHost || all > maxSpools {
		return nil, errSpoolsFull
	}
	if d.fetching == nil {
		d.fetching = map[string]fetch{}
	}
	d.fetching[dir] = fetch{host, size}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.fetching, dir)
	}, nil
}
