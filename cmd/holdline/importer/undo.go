package importer

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"holdline/cmd/holdline/clients"
	"holdline/protocol/ownfile"
)

// Undo reverts all imports that are on record, the last one first.
//
// A file that has not changed since gets its old bytes back, and one that the import
// created is removed. In another file each entry that is as the import left it gets
// its old text back. Entries that have changed are left and listed in [Done.Left];
// they stay on record, and a later Undo reverts those that are again as the import
// left them.
//
// The error says that no journal could be read or written. Files that cannot be
// reverted are listed in Done.Left instead.
func Undo(ctx context.Context, o Options) (Done, error) { return undoSome(ctx, o, "") }

// Undo reverts what [Plan.Write] has done, as [Undo] does, and no earlier import.
func (d Done) Undo(ctx context.Context, o Options) (Done, error) { return undoSome(ctx, o, d.Backup) }

// undoSome reverts the import whose journal is in the directory only; "" reverts all.
func undoSome(ctx context.Context, o Options, only string) (Done, error) {
	d := Done{Files: []string{}, Left: []Left{}}
	list, err := readJournals(o.State)
	if err != nil {
		return d, err
	}
	for _, j := range list {
		if only != "" && j.dir != only {
			continue
		}
		if err := j.undo(ctx, &o, &d); err != nil {
			return d, err
		}
	}
	return d, nil
}

// undo reverts the edits of a journal, and removes those that are reverted from it.
func (j *journal) undo(ctx context.Context, o *Options, d *Done) error {
	var left []*edit
	for _, e := range slices.Backward(j.Edits) {
		err := j.undoEdit(ctx, o, e, d)
		if err != nil {
			d.Left = append(d.Left, Left{Path: e.Path, Why: err.Error()})
		}
		if err != nil || len(e.Keys) > 0 {
			left = append(left, e)
		}
	}
	if len(left) == 0 {
		return j.remove()
	}
	slices.Reverse(left)
	j.Edits, d.Backup = left, j.dir
	return j.writeFile()
}

// undoEdit reverts one edit. If the file changes meanwhile, it tries again, at most
// maxTries times; what the failed attempts listed in d.Left is dropped.
func (j *journal) undoEdit(ctx context.Context, o *Options, e *edit, d *Done) error {
	listed := len(d.Left)
	for range maxTries {
		d.Left = d.Left[:listed]
		r := reversal{o: o, j: j, e: e, d: d, client: clients.ByName(e.Client)}
		if err := r.revert(ctx); !errors.Is(err, clients.ErrChanged) {
			return err
		}
	}
	d.Left = d.Left[:listed]
	return errKeepsChanging
}

// reversal is the undo of one edit. It removes from the edit the keys that it reverts.
type reversal struct {
	o      *Options
	j      *journal
	e      *edit
	d      *Done
	client *clients.Client
	now    []byte // the file
}

// revert reverts the edit as a whole if the file has exactly the bytes that the import
// wrote and the copy is undamaged, else key by key. A file that is gone has nothing to
// revert if the import created it; otherwise its entries are left, and the reason
// names the copy.
//
// Permissions that the import has removed from holdline's file are restored once all
// keys are reverted, unless the user has set others since.
func (r *reversal) revert(ctx context.Context) error {
	e := r.e
	now, err := clients.ReadFile(e.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && e.Made:
		e.Keys = nil
		ownfile.RemoveEmptyDirs(e.Dirs)
		return nil
	case errors.Is(err, fs.ErrNotExist):
		for _, k := range e.Keys {
			r.leaveEntry(k, "its file is gone; its old content is in "+filepath.Join(r.j.dir, e.Backup))
		}
		return nil
	case err != nil:
		return err
	}
	r.now = now
	clients.RemoveTemporary(e.Path)
	was, berr := r.j.backup(e)
	inUse := r.serversInUse()
	if hash(now) == e.After && len(inUse) == 0 && (berr == nil && hash(was) == e.Before) {
		if was = append([]byte{}, was...); e.Made { // a file that was empty is not removed
			was = nil
		}
		if err = r.swap(ctx, was); err == nil {
			e.Keys = nil
		}
	} else {
		err = r.revertKeys(ctx, was, inUse)
	}
	if err == nil && e.Mode != 0 && len(e.Keys) == 0 {
		if info, err := os.Stat(e.Path); err == nil && info.Mode().Perm() == e.Mode&^othersMode {
			_ = os.Chmod(e.Path, e.Mode) // the file is the user's; if this fails nothing is lost
		}
	}
	return err
}

// swap replaces the file by data; with nil it removes the file and the directories
// that were created for it.
func (r *reversal) swap(ctx context.Context, data []byte) error {
	if r.client != &clients.Holdline {
		testOnlyBeforeSwap(r.e.Path)
	}
	if err := r.client.Swap(ctx, r.e.Path, r.now, data); err != nil {
		return err
	}
	if data == nil {
		ownfile.RemoveEmptyDirs(r.e.Dirs)
	}
	if !slices.Contains(r.d.Files, r.e.Path) {
		r.d.Files = append(r.d.Files, r.e.Path)
	}
	return nil
}

// leaveEntry records that an entry stays as it is.
func (r *reversal) leaveEntry(k *keyChange, why string) {
	k.Left = why
	r.d.Left = append(r.d.Left, Left{Path: r.e.Path, Key: k.name(), Why: why})
}

// revertKeys reverts the entries that are as the import left them, and then removes
// the objects that the import created for them. was is the file before the import, if
// its copy can be read. inUse has the servers that must stay, with the reasons. The
// file is removed if the import created it and nothing is left in it.
func (r *reversal) revertKeys(ctx context.Context, was []byte, inUse map[string]string) error {
	doc, err := r.client.Parse(r.now)
	if err != nil {
		return err
	}
	var left []*keyChange
	for _, k := range slices.Backward(r.e.Keys) {
		why := inUse[k.name()]
		if why == "" {
			why = k.revert(doc)
		}
		if why != "" {
			r.leaveEntry(k, why)
			left = append(left, k)
		}
	}
	if before, err := r.client.Parse(was); err == nil {
		for _, k := range r.e.Keys {
			doc.RemoveEmptyParents(k.Path, before)
		}
	}
	after := doc.Bytes()
	if text := string(bytes.TrimSpace(after)); r.e.Made && len(left) == 0 && (text == "" || text == "{}") {
		after = nil
	}
	if after == nil || !bytes.Equal(after, r.now) {
		if err := r.swap(ctx, after); err != nil {
			return err
		}
	}
	slices.Reverse(left)
	r.e.Keys = left
	return nil
}

// revert gives an entry its old text back in doc, or returns why it must stay. An
// entry that has its old meaning already needs nothing.
func (k *keyChange) revert(doc clients.Document) (why string) {
	_, there := doc.Text(k.Path...)
	is := func(text *string) bool { return there == (text != nil) && (!there || doc.Same(k.Path, *text)) }
	switch {
	case is(k.New) && k.Old == nil:
		doc.Remove(k.Path...)
		return ""
	case is(k.New):
		if err := doc.Put(*k.Old, k.Path...); err != nil {
			return err.Error()
		}
		return ""
	case is(k.Old):
		return "" // it is reverted already
	case !there:
		return "it was removed since"
	}
	return "it was changed since"
}

// serversInUse returns the servers of holdline's file that clients' entries still
// start, each with a sentence that names one of the entries. An undo leaves an entry that
// the user has changed; without its server that entry would fail. The files that the import
// has edited may be those of another project than the current one. For other files than
// holdline's own it returns nil.
func (r *reversal) serversInUse() map[string]string {
	if r.client != &clients.Holdline {
		return nil
	}
	out := map[string]string{}
	files := clients.Files(r.o.Places, nil)
	for _, e := range r.j.Edits {
		if e.Client != "" {
			files = append(files, clients.File{Client: clients.ByName(e.Client), Path: e.Path})
		}
	}
	for _, f := range files {
		data, err := clients.ReadFile(f.Path)
		if err != nil {
			continue
		}
		doc, err := f.Client.Parse(data)
		if err != nil {
			continue
		}
		for _, e := range doc.Entries() {
			name, ok := e.StartsHoldline()
			if ok && slices.ContainsFunc(r.e.Keys, func(k *keyChange) bool { return k.name() == name }) {
				out[name] = "the entry " + e.Name() + " of " + f.Path + " still starts it"
			}
		}
	}
	return out
}
