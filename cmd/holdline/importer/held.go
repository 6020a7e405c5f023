package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"holdline/cmd/holdline/clients"
	"holdline/protocol/project"
)

// Held is an entry of a client's file that starts holdline.
type Held struct {
	Title   string // of the client
	Path    string // of the file
	Name    string // of the entry
	Server  string // for which it starts holdline; "" is all of them
	Project string // directory in which the client uses it; "" is any
	// Written is set if an import is on record that wrote an entry at that place. The entry may have been
	// edited since.
	Written bool
	// Elsewhere is set if the entry may start another holdline than this one: on another machine, in a container, or
	// with other files. It is not for this command to remove.
	Elsewhere bool
	// Common is set for an entry of a file that people share by git, and that no import wrote.
	Common bool

	client *clients.Client
	path   []string
}

// FindHeld returns the entries of all clients' files that start holdline, and the files that cannot be read and may
// have such entries: those in whose bytes the proxy is named, or that have no bytes to read. Files that imports have
// edited are among them, wherever they lie. The error says that the records of the imports cannot be read; then it
// is not known which entries they wrote.
func FindHeld(o Options) (list []Held, unread []Left, err error) {
	journals, err := readJournals(o.State)
	files := slices.DeleteFunc(clients.Files(o.Places, nil), func(f clients.File) bool { return f.Missing || f.Twin != "" })
	for _, j := range journals {
		for _, e := range j.Edits {
			known := slices.ContainsFunc(files, func(f clients.File) bool { return f.Path == e.Path })
			if c := clients.ByName(e.Client); c != &clients.Holdline && !known {
				files = append(files, clients.File{Client: c, Path: e.Path, Tree: project.WorkTree(e.Path)})
			}
		}
	}
	for _, f := range files {
		data, rerr := clients.ReadFile(f.Path)
		if errors.Is(rerr, fs.ErrNotExist) {
			continue // an import had edited it, and it is gone
		}
		var doc clients.Document
		if rerr == nil {
			if doc, rerr = f.Client.Parse(data); rerr != nil && !namesProxy(data) {
				continue
			}
		}
		if rerr != nil {
			unread = append(unread, Left{Path: f.Path, Why: rerr.Error()})
			continue
		}
		for _, e := range doc.Entries() {
			server, ok := e.StartsHoldline()
			if !ok {
				continue
			}
			h := Held{
				Title: f.Client.Title, Path: f.Path, Name: e.Name(), Server: server, Project: e.Project,
				Elsewhere: o.isElsewhere(f.Client, &e), client: f.Client, path: e.Path,
			}
			h.Written = slices.ContainsFunc(journals, func(j *journal) bool { return j.change(&h) != nil })
			h.Common = (f.Project != "" || f.Tree != "") && !h.Written
			list = append(list, h)
		}
	}
	return list, unread, err
}

// namesProxy reports whether a file that has mistakes may have an entry that starts holdline.
func namesProxy(data []byte) bool {
	return bytes.Contains(data, []byte("mcp-stdio")) || bytes.Contains(data, []byte("holdline-stdio"))
}

// change returns what the import did to an entry, or nil if it is not on record.
func (j *journal) change(h *Held) *keyChange {
	for _, e := range j.Edits {
		if e.Path != h.Path {
			continue
		}
		for _, k := range e.Keys {
			if slices.Equal(k.Path, h.path) {
				return k
			}
		}
	}
	return nil
}

// TakeAway removes entries from clients' files. With giveBack an entry that an import has written becomes what
// it was before that instead. Either way the imports' records lose it: a later undo has nothing to do there.
//
// The text of what it removes and no import wrote is kept in the file [Done.Kept] before.
//
// The error says that the records cannot be read or written. An entry that stays is in [Done.Left].
func TakeAway(ctx context.Context, o Options, list []Held, giveBack bool) (Done, error) {
	d := Done{Files: []string{}, Left: []Left{}}
	journals, err := readJournals(o.State)
	if err != nil {
		return d, err
	}
	kept := newRemoved(o.State, time.Now())
	for i := range list {
		h := &list[i]
		old := ""
		if giveBack {
			old = clientsOwn(journals, h)
		}
		if err := h.replace(ctx, old, journals, kept); err != nil {
			d.Left = append(d.Left, Left{Path: h.Path, Key: h.Name, Why: err.Error()})
			if err := kept.drop(h); err != nil {
				return d, err
			}
			continue
		}
		if len(kept.list) > 0 {
			d.Kept = kept.path
		}
		if !slices.Contains(d.Files, h.Path) {
			d.Files = append(d.Files, h.Path)
		}
		for _, j := range journals {
			if err := j.forget(h); err != nil {
				return d, err
			}
		}
	}
	slices.Sort(d.Files)
	return d, nil
}

// clientsOwn returns the text of an entry as it was before the latest import that replaced one of the client's
// own; "" if there was none. The newest journal comes first.
func clientsOwn(journals []*journal, h *Held) string {
	for _, j := range journals {
		if k := j.change(h); k != nil && k.Old != nil {
			return *k.Old
		}
	}
	return ""
}

// isWritten reports whether an entry of doc is as an import wrote it.
func (h *Held) isWritten(doc clients.Document, journals []*journal) bool {
	return slices.ContainsFunc(journals, func(j *journal) bool {
		k := j.change(h)
		return k != nil && k.New != nil && doc.Same(h.path, *k.New)
	})
}

// replace gives an entry of its client's file that text, or removes it if the text is "". It tries again if the
// file changes meanwhile. What no import wrote it keeps before.
func (h *Held) replace(ctx context.Context, text string, journals []*journal, kept *removed) error {
	for range maxTries {
		now, err := clients.ReadFile(h.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		doc, err := h.client.Parse(now)
		if err != nil {
			return err
		}
		e := clients.Find(doc, h.path)
		if e == nil {
			return nil // somebody has removed it meanwhile
		}
		if _, ours := e.StartsHoldline(); !ours {
			return nil // it is the client's own again
		}
		if own, ok := doc.Text(h.path...); ok && !h.isWritten(doc, journals) {
			if err := kept.keep(h, own); err != nil {
				return err
			}
		}
		if text == "" {
			doc.Remove(h.path...)
		} else if err := doc.Put(text, h.path...); err != nil {
			return err
		} else if _, ours := clients.Find(doc, h.path).StartsHoldline(); ours {
			doc.Remove(h.path...) // the client had none of its own
		}
		if err := h.client.Swap(ctx, h.Path, now, doc.Bytes()); !errors.Is(err, clients.ErrChanged) {
			return err
		}
	}
	return errKeepsChanging
}

// forget removes an entry from the record. A record that is empty then goes, too.
func (j *journal) forget(h *Held) error {
	if j.change(h) == nil {
		return nil
	}
	for _, e := range j.Edits {
		if e.Path == h.Path {
			e.Keys = slices.DeleteFunc(e.Keys, func(k *keyChange) bool { return slices.Equal(k.Path, h.path) })
		}
	}
	j.Edits = slices.DeleteFunc(j.Edits, func(e *edit) bool { return e.Path == h.Path && len(e.Keys) == 0 })
	if len(j.Edits) == 0 {
		return j.remove()
	}
	return j.writeFile()
}

// String names an entry for people.
func (h *Held) String() string { return fmt.Sprintf("%s of %s (%s)", h.Name, h.Title, h.Path) }
