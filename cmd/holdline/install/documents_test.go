package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// documents installs documents with these texts, by their names below the home.
func (m *machine) documents(texts map[string]string, force bool) string {
	m.t.Helper()
	m.out.Reset()
	var all []Document
	for name, text := range texts {
		all = append(all, Document{Path: filepath.Join(m.home, name), Data: []byte(text)})
	}
	if err := m.InstallDocuments(m.t.Context(), all, force); err != nil {
		m.t.Fatalf("InstallDocuments: %v\n%s", err, &m.out)
	}
	return m.out.String()
}

// TestInstallDocuments_OneLineForAll checks that documents are reported in one line, that a second installation does
// and says nothing, and that uninstall removes all of them with their directories.
func TestInstallDocuments_OneLineForAll(t *testing.T) {
	m := newMachine(t)
	before := m.tree()
	two := map[string]string{"share/man/man1/a.1": "page", "fish/b.fish": "completions"}
	const line = "write completions and man pages (2 files)\n"
	m.DryRun = true
	if out := m.documents(two, false); out != "would "+line || m.tree() != before {
		t.Errorf("a dry run says %q, and the home is\n%s", out, m.tree())
	}
	m.DryRun = false
	if out := m.documents(two, false); out != line || m.read(filepath.Join(m.home, "fish/b.fish")) != "completions" {
		t.Errorf("it says %q, and the home is\n%s", out, m.tree())
	}
	installed := m.tree()
	if out := m.documents(two, false); out != "" || m.tree() != installed {
		t.Errorf("a second time it says %q, and the home is\n%s", out, m.tree())
	}
	m.DryRun = true
	if out := m.uninstall(false); m.tree() != installed ||
		!strings.Contains(out, "would remove completions and man pages (2 files)\n") {
		t.Errorf("a dry uninstall says\n%s", out)
	}
	m.DryRun = false
	if out := m.uninstall(false); m.tree() != before ||
		!strings.Contains(out, "\nremove completions and man pages (2 files)\n") && !strings.HasPrefix(out, "remove compl") {
		t.Errorf("uninstall says\n%s\nand leaves\n%s", out, m.tree())
	}
}

// TestInstallDocuments_NewVersion checks that the documents of another version replace those of the one before, which
// are removed if the new version does not have them.
func TestInstallDocuments_NewVersion(t *testing.T) {
	m := newMachine(t)
	before := m.tree()
	m.documents(map[string]string{"man/gone.1": "1", "man/same.1": "1", "man/changed.1": "1"}, false)
	m.documents(map[string]string{"man/same.1": "1", "man/changed.1": "2", "man/new.1": "2"}, false)
	for name, want := range map[string]string{"same.1": "1", "changed.1": "2", "new.1": "2"} {
		if got := m.read(filepath.Join(m.home, "man", name)); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(m.home, "man/gone.1")); !os.IsNotExist(err) {
		t.Errorf("the page of a command that is gone: %v", err)
	}
	if got := m.manifest(); len(got.Files) != 3 {
		t.Errorf("the manifest has %+v", got.Files)
	}
	if m.uninstall(false); m.tree() != before {
		t.Errorf("uninstall leaves\n%s", m.tree())
	}
}

// TestInstallDocuments_EditedFileStays checks that a file that the user has written or changed is named and left, by
// an installation and an uninstall, unless it is forced.
func TestInstallDocuments_EditedFileStays(t *testing.T) {
	m := newMachine(t)
	mine, edited := filepath.Join(m.home, "man/mine.1"), filepath.Join(m.home, "man/edited.1")
	m.write(mine, "mine")
	texts := map[string]string{"man/mine.1": "page", "man/edited.1": "page", "man/other.1": "page"}
	if out := m.documents(texts, false); !strings.Contains(out, "left: "+mine+" ") || m.read(mine) != "mine" {
		t.Errorf("over a file of the user it says\n%s", out)
	}
	m.write(edited, "edited")
	texts["man/edited.1"], texts["man/other.1"] = "page 2", "page 2"
	out := m.documents(texts, false)
	if !strings.Contains(out, "left: "+edited+" ") || m.read(edited) != "edited" ||
		m.read(filepath.Join(m.home, "man/other.1")) != "page 2" {
		t.Errorf("over an edited file it says\n%s", out)
	}
	if out := m.uninstall(false); m.read(edited) != "edited" || m.read(mine) != "mine" ||
		!strings.Contains(out, "left: "+edited) {
		t.Errorf("uninstall says\n%s", out)
	}
	if m.documents(texts, true); m.read(mine) != "page" || m.read(edited) != "page 2" {
		t.Error("--force does not replace the files")
	}
}

// TestInstallDocuments_FailureUndone checks that documents that cannot be written leave nothing behind, and that the
// report names what is undone: the programs stay.
func TestInstallDocuments_FailureUndone(t *testing.T) {
	m := newMachine(t)
	before := m.tree()
	err := m.InstallDocuments(t.Context(), []Document{
		{Path: filepath.Join(m.home, "fish/a.fish"), Data: []byte("completions")},
		{Path: filepath.Join(m.home, "man"), Data: []byte("a file where the next one needs a directory")},
		{Path: filepath.Join(m.home, "man/a.1"), Data: []byte("page")},
	}, false)
	if err == nil || m.tree() != before || !strings.Contains(m.out.String(), "undone: write completions and man pages (3 files)") {
		t.Errorf("InstallDocuments = %v, and the home is\n%s\nit said\n%s", err, m.tree(), &m.out)
	}
}
