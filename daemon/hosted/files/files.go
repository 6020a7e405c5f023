// Package files keeps what outlives the processes of servers, in three files of each: what it
// offered last, how it stands, and the log of the process that ended last.
package files

import (
	"errors"
	"log/slog"
	"path/filepath"
	"sync"

	"holdline/daemon/hosted/verdict"
	"holdline/daemon/listing"
	"holdline/protocol/ownfile"
)

// Files are those of all servers. It is safe for concurrent use.
type Files struct {
	CatalogDir string // of what servers offer
	StateDir   string // of how they stand
	Logger     *slog.Logger

	writing sync.Mutex // held while a file is written, so that an older state never replaces a newer one
}

// offers returns the path of the file that has a server's offers and pins.
func (f *Files) offers(server string) string { return filepath.Join(f.CatalogDir, server+".json") }

// verdict returns the path of the file with a server's verdict.
func (f *Files) verdict(server string) string { return filepath.Join(f.StateDir, server+".json") }

// Log returns the path of the file with the log of a server's process that ended last.
func (f *Files) Log(server string) string { return LogIn(f.StateDir, server) }

// LogIn returns the path of that file in a directory of how servers stand.
func LogIn(dir, server string) string { return filepath.Join(dir, server+".log") }

// Read reads the files of a server whose entry has that key. The offers are nil if they are not
// known; of a file that is damaged they say that. It logs a failure.
func (f *Files) Read(server, key string) (verdict.Verdict, *listing.Memory) {
	v, err := verdict.Read(f.verdict(server), key)
	var mem *listing.Memory
	unread := ownfile.Again(func() (err error) {
		mem, err = listing.ReadMemory(f.offers(server))
		return err
	})
	if unread != nil {
		mem = &listing.Memory{Lost: f.offers(server)}
	}
	if mem != nil && mem.Torn != "" {
		f.Logger.Warn("what a server has offered is forgotten, since the file is damaged", "server", server, "file", mem.Torn)
	}
	if err = errors.Join(err, unread); err != nil {
		f.Logger.Warn("what was known of a server is forgotten", "server", server, "err", err)
	}
	return v, mem
}

// WriteOffers writes what a server offers, as now returns it; nil writes nothing. It logs a
// failure.
func (f *Files) WriteOffers(server string, now func() *listing.Memory) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	mem := now()
	if mem == nil {
		return nil
	}
	err := mem.Write(f.offers(server))
	if err != nil {
		f.Logger.Warn("what a server offers cannot be remembered", "server", server, "err", err)
	}
	return err
}

// WriteVerdict writes the verdict on a server, and the key of its entry, as now returns them.
func (f *Files) WriteVerdict(server string, now func() (v verdict.Verdict, key string)) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	v, key := now()
	return v.Write(f.verdict(server), key)
}
