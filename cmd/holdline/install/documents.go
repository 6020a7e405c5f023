package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"holdline/daemon/plural"
)

// A Document is a file for people at a command line: a man page, or the completions for a shell.
type Document struct {
	Path string
	Data []byte
}

// documentWords names n documents in a report: there are dozens, so they share one line.
func documentWords(n int) string {
	return fmt.Sprintf("completions and man pages (%s)", plural.Count(n, "file"))
}

// InstallDocuments writes the documents, and removes those of an earlier version that are not among them. It reports
// one line for all of them, and none if nothing changes. A file that the user has changed is left and named, unless
// force is set.
func (o *Options) InstallDocuments(ctx context.Context, documents []Document, force bool) error {
	p, unlock, err := o.newPlan(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	var changes []documentChange
	for _, d := range documents {
		want := content{exists: true, data: d.Data, mode: 0o644}
		now, err := readContent(d.Path)
		switch {
		case err != nil:
			o.report("left: %v", err)
			continue
		case now.exists && now.id() == want.id():
			continue
		case now.exists && !p.next.file(d.Path).isOurs(now) && !force:
			o.report("left: %s is not as install has written it; --force replaces it", d.Path)
			continue
		}
		p.recordFile(Page, d.Path, want.id())
		changes = append(changes, documentChange{path: d.Path, now: now, want: want})
	}
	changes = append(changes, p.outdated(documents)...)
	if len(changes) == 0 {
		return nil
	}
	done := 0
	p.steps = []step{{
		what: "write " + documentWords(len(changes)),
		do: func(context.Context) error {
			for ; done < len(changes); done++ {
				if err := changes[done].make(); err != nil {
					return err
				}
			}
			return nil
		},
		undo: func(context.Context) error {
			var errs []error
			for _, c := range changes[:done] {
				errs = append(errs, c.now.putFile(c.path))
			}
			return errors.Join(errs...)
		},
	}}
	p.recordMissing(o.ConfigDir) // the first server that is configured creates it
	return p.carryOut(ctx)
}

// documentChange is what InstallDocuments does with one path.
type documentChange struct {
	path      string
	now, want content
}

// outdated returns the removals of the documents that an earlier version has installed and this one does not have.
func (p *plan) outdated(documents []Document) []documentChange {
	var changes []documentChange
	for _, f := range p.old.Files {
		if f.Kind != Page || slices.ContainsFunc(documents, func(d Document) bool { return d.Path == f.Path }) {
			continue
		}
		if now, err := readContent(f.Path); err == nil && f.isOurs(now) {
			p.recordFile(Page, f.Path, removed)
			changes = append(changes, documentChange{path: f.Path, now: now})
		}
	}
	return changes
}

// make makes the change.
func (c *documentChange) make() error {
	if c.want.exists {
		if err := os.MkdirAll(filepath.Dir(c.path), 0o700); err != nil {
			return err
		}
	}
	return c.want.putFile(c.path)
}
