package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdline/daemon/config"
	"holdline/protocol/ownfile"
)

// Undo takes back what imports did, the last one first. A file that nobody has
// changed since becomes what it was, byte for byte; in another one each entry
// is put back that is as import left it. What is left is told, and can be taken
// back by another Undo once it is as it was.
func Undo(ctx context.Context, o Options) (Done, error) {
	d := Done{Files: []string{}, Left: []Left{}}
	list, err := readJournals(o.State)
	if err != nil {
		return d, err
	}
	for _, j := range list {
		if err := j.undo(ctx, &o, &d); err != nil {
			return d, err
		}
	}
	return d, nil
}

func (j *journal) undo(ctx context.Context, o *Options, d *Done) error {
	left := false
	for _, e := range slices.Backward(slices.Clone(j.Edits)) {
		if err := j.undoEdit(ctx, o, e, d); err != nil {
			d.Left = append(d.Left, Left{Path: e.Path, Why: err.Error()})
			left = true
			continue
		}
		left = left || len(e.Keys) > 0
		if len(e.Keys) == 0 {
			j.Edits = slices.DeleteFunc(j.Edits, func(x *edit) bool { return x == e })
		}
	}
	if left {
		d.Backup = j.dir
		return j.write()
	}
	return j.remove()
}

// undoEdit undoes one edit, again if the file changes meanwhile.
func (j *journal) undoEdit(ctx context.Context, o *Options, e *edit, d *Done) error {
	told := len(d.Left)
	for range tries {
		d.Left = d.Left[:told]
		u := undoing{o: o, j: j, e: e, d: d}
		if err := u.run(ctx); !errors.Is(err, config.ErrChanged) {
			return err
		}
	}
	d.Left = d.Left[:told]
	return fmt.Errorf("it changes all the time: %w", config.ErrChanged)
}

// undoing is that of one edit. It leaves in the edit the keys that are left.
type undoing struct {
	o   *Options
	j   *journal
	e   *edit
	d   *Done
	now []byte

	changed bool // the file was
}

func (u *undoing) run(ctx context.Context) error {
	e := u.e
	now, err := os.ReadFile(e.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !e.Made {
			for _, k := range e.Keys {
				u.leave(k, "its file is gone; as it was it is "+filepath.Join(u.j.dir, e.Backup))
			}
			return nil
		}
		e.Keys = nil
		prune(e.Dirs)
		return nil
	case err != nil:
		return errors.New(reason(err))
	}
	u.now = now
	u.sweep()
	used := u.used()
	if sum(now) == e.After && len(used) == 0 {
		err = u.whole(ctx)
	} else {
		err = u.keys(ctx, used)
	}
	if err == nil && u.changed && !slices.Contains(u.d.Files, e.Path) {
		u.d.Files = append(u.d.Files, e.Path)
	}
	if err == nil {
		u.reopen()
	}
	return err
}

// reopen gives the file the permissions back that it lost, once nothing is in it
// that they were taken for.
func (u *undoing) reopen() {
	if u.e.Mode == 0 || len(u.e.Keys) > 0 {
		return
	}
	if info, err := os.Stat(u.e.Path); err == nil && info.Mode().Perm() == u.e.Mode&^others {
		_ = os.Chmod(u.e.Path, u.e.Mode) // it is the user's own; without, nothing is lost
	}
}

// sweep removes what an edit that was interrupted left beside the file.
func (u *undoing) sweep() {
	target, err := filepath.EvalSymlinks(u.e.Path)
	if err != nil {
		return
	}
	list, _ := os.ReadDir(filepath.Dir(target))
	for _, d := range list {
		if strings.HasPrefix(d.Name(), temporary(target)) {
			_ = os.Remove(filepath.Join(filepath.Dir(target), d.Name()))
		}
	}
}

// client is whose file it is.
func (u *undoing) client() *client {
	for _, c := range table() {
		if c.name == u.e.Client {
			return &c
		}
	}
	return &client{key: "mcpServers"} // holdline's own
}

// whole puts the file back as it was.
func (u *undoing) whole(ctx context.Context) error {
	if u.e.Made {
		if err := u.withdraw(ctx); err != nil {
			return err
		}
		prune(u.e.Dirs)
		u.e.Keys = nil
		return nil
	}
	was, err := ownfile.Read(filepath.Join(u.j.dir, u.e.Backup), ownfile.MaxDocument)
	if err != nil {
		return err
	}
	if sum(was) != u.e.Before {
		return u.keys(ctx, nil) // the copy is damaged
	}
	if err := u.swap(ctx, was); err != nil {
		return err
	}
	u.e.Keys = nil
	return nil
}

func (u *undoing) swap(ctx context.Context, data []byte) error {
	u.changed = true
	if u.e.Client == "" {
		return config.Swap(ctx, u.e.Path, u.now, data)
	}
	return swap(ctx, u.client(), u.e.Path, u.now, data)
}

// withdraw removes a file that import made.
func (u *undoing) withdraw(ctx context.Context) error {
	u.changed = true
	if u.e.Client == "" {
		return config.Withdraw(ctx, u.e.Path, u.now)
	}
	now, err := os.ReadFile(u.e.Path)
	if err != nil {
		return errors.New(reason(err))
	}
	if !bytes.Equal(now, u.now) {
		return config.ErrChanged
	}
	return os.Remove(u.e.Path)
}

func (u *undoing) leave(k *keyChange, why string) {
	k.Left = why
	u.d.Left = append(u.d.Left, Left{Path: u.e.Path, Key: k.name(), Why: why})
}

// keys puts back the entries that are as import left them. Used names the
// servers that entries still start.
func (u *undoing) keys(ctx context.Context, used map[string]string) error {
	doc, err := u.client().parse(u.e.Path, u.now)
	if err != nil {
		return err
	}
	var left []*keyChange
	for _, k := range slices.Backward(u.e.Keys) {
		if by := used[k.name()]; by != "" && u.e.Client == "" {
			u.leave(k, by+" still starts it")
			left = append(left, k)
			continue
		}
		if why := k.back(doc); why != "" {
			u.leave(k, why)
			left = append(left, k)
		}
	}
	u.tidy(doc)
	after := doc.bytes()
	switch bare := string(bytes.TrimSpace(after)); {
	case u.e.Made && len(left) == 0 && (bare == "" || bare == "{}"):
		if err := u.withdraw(ctx); err != nil {
			return err
		}
		prune(u.e.Dirs)
	case !bytes.Equal(after, u.now):
		if err := u.swap(ctx, after); err != nil {
			return err
		}
	}
	slices.Reverse(left)
	u.e.Keys = left
	return nil
}

// back puts an entry back; why it is left if it does not.
func (k *keyChange) back(doc document) (why string) {
	_, there := doc.text(k.Path)
	switch {
	case k.New != nil && there && doc.same(k.Path, *k.New), k.New == nil && !there:
		if k.Old == nil {
			doc.remove(k.Path)
			return ""
		}
		if err := doc.put(k.Path, *k.Old); err != nil {
			return err.Error()
		}
		return ""
	case k.Old == nil && !there, k.Old != nil && there && doc.same(k.Path, *k.Old):
		return "" // it is back already
	case !there:
		return "it was removed since"
	}
	return "it was changed since"
}

// tidy removes the objects that are empty now and were not there before.
func (u *undoing) tidy(doc document) {
	x, ok := doc.(*jsonFile)
	if !ok {
		return
	}
	data, _ := ownfile.Read(filepath.Join(u.j.dir, u.e.Backup), ownfile.MaxDocument)
	if u.e.Backup == "" {
		data = nil
	}
	was, err := config.ParseText("", data)
	if err != nil {
		return
	}
	for _, k := range u.e.Keys {
		for at := k.Path[:len(k.Path)-1]; len(at) > 0; at = at[:len(at)-1] {
			if keys := x.file.Keys(at...); keys == nil || len(keys) > 0 {
				break
			}
			if _, there := was.Value(at...); there {
				break
			}
			x.file.Remove(at...)
		}
	}
}

// used are the servers of holdline's file that an entry still starts, and
// where that stands: an entry that was left needs its server.
func (u *undoing) used() map[string]string {
	if u.e.Client != "" {
		return nil
	}
	o := *u.o
	o.From = nil
	list, err := sources(o)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for _, s := range list {
		data, err := readFile(s.path)
		if err != nil {
			continue
		}
		doc, err := s.client.parse(s.path, data)
		if err != nil {
			continue
		}
		for _, e := range doc.entries() {
			name, ok := ours(e.keys)
			if ok && slices.ContainsFunc(u.e.Keys, func(k *keyChange) bool { return k.name() == name }) {
				out[name] = "the entry " + e.name() + " of " + s.path
			}
		}
	}
	return out
}
