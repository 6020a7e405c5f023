package consult

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/tool"
)

// Bounds of what the daemon puts behind a prompt, in bytes.
const (
	maxFile  = 256 << 10 // of one file; the rest is left for the program to read
	maxFiles = 2 << 20   // of all files together
	maxDiff  = 512 << 10
	maxShown = 16 << 10 // of a diff that an answer repeats
)

// Context lists what the daemon has put behind a prompt. It is kept with the answer for
// the user to see.
type Context struct {
	Files   []GivenFile `json:"files,omitempty"`
	AddDirs []string    `json:"add_dirs,omitempty"`
	Diff    *GivenDiff  `json:"diff,omitempty"`
	More    int         `json:"more,omitempty"` // files and directories that were left out here
}

// GivenFile is a file of a [Context].
type GivenFile struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`          // that it has
	Given int    `json:"given"`          // that were quoted; 0 if it was named alone
	Left  string `json:"left,omitempty"` // why it was not quoted whole
}

// GivenDiff is the diff of a [Context]. The prompt has the whole diff up to maxDiff
// bytes; Text repeats only its beginning, for the user to see.
type GivenDiff struct {
	Of        string   `json:"of"`             // uncommitted, staged, or a base
	Base      string   `json:"base,omitempty"` // commit that it was compared with; "" if there was none
	Bytes     int      `json:"bytes"`          // that were quoted
	Cut       bool     `json:"cut"`            // there were more
	Untracked []string `json:"untracked,omitempty"`
	Text      string   `json:"text"` // the beginning of the diff
}

// words returns a line for each file, directory and diff of the context, for people.
func (c *Context) words() []string {
	if c == nil {
		return nil
	}
	var list []string
	for _, f := range c.Files {
		text := fmt.Sprintf("file %s (%d of %d bytes)", f.Path, f.Given, f.Bytes)
		list = append(list, text)
	}
	for _, dir := range c.AddDirs {
		list = append(list, "directory "+dir)
	}
	if d := c.Diff; d != nil {
		text := fmt.Sprintf("diff %s (%d bytes", d.Of, d.Bytes)
		if d.Cut {
			text += ", cut"
		}
		list = append(list, text+")")
	}
	return list
}

// brief returns a short copy of the context: the first file, the first directory, and
// the diff without its text. More counts what it leaves out.
func (c *Context) brief() *Context {
	if c == nil {
		return nil
	}
	short := &Context{Files: c.Files[:min(len(c.Files), 1)], AddDirs: c.AddDirs[:min(len(c.AddDirs), 1)]}
	short.More = len(c.Files) + len(c.AddDirs) - len(short.Files) - len(short.AddDirs)
	if c.Diff != nil {
		diff := *c.Diff
		diff.Text, diff.Untracked = "", nil
		short.Diff = &diff
	}
	return short
}

// gather appends the files, directories and the diff that a call names to the prompt of
// req, and returns what it has appended. It returns nil if the call names none. The
// error is a fault.
//
// The daemon reads the files itself, so it checks each path against the same rules as
// the working directory: a consult must not be a way to read a file that the program is
// not shown.
func (m *Manager) gather(ctx context.Context, set *Settings, c tool.Caller, a *arguments,
	req *engine.Request,
) (*Context, error) {
	if len(a.Files)+len(a.AddDirs) == 0 && a.Diff == "" {
		return nil, nil //nolint:nilnil // there is no context, and nothing is wrong with that
	}
	given := &Context{AddDirs: req.AddDirs}
	var text strings.Builder
	text.WriteString(req.Prompt)
	for _, dir := range req.AddDirs {
		fmt.Fprintf(&text, "\n\n<directory path=%q>You can look around here, too.</directory>", dir)
	}
	room := maxFiles
	for _, name := range a.Files {
		file, data, err := m.file(set, c, req, name, min(room, maxFile))
		if err != nil {
			return nil, err
		}
		room -= len(data)
		given.Files = append(given.Files, file)
		quote(&text, "file", file.Path, file.Left, data)
	}
	if a.Diff != "" {
		diff, data, err := m.diff(ctx, req.Cwd, a.Diff)
		if err != nil {
			return nil, err
		}
		given.Diff = diff
		left := ""
		if diff.Cut {
			left = "it goes on: look at the files themselves"
		}
		quote(&text, "diff", diff.Of, left, data)
		if len(diff.Untracked) > 0 {
			quote(&text, "untracked", "files that are new", "", []byte(strings.Join(diff.Untracked, "\n")))
		}
	}
	if text.Len() > maxPrompt {
		return nil, invalid("prompt: with its files and its diff it has %d bytes, at most %d can be taken",
			text.Len(), maxPrompt)
	}
	req.Prompt = text.String()
	return given, nil
}

// quote appends one piece of context to a prompt, in an element that names it. left
// says what is missing of it; "" says that it is whole.
func quote(text *strings.Builder, kind, name, left string, data []byte) {
	fmt.Fprintf(text, "\n\n<%s of=%q", kind, name)
	if left != "" {
		fmt.Fprintf(text, " left-out=%q", left)
	}
	text.WriteString(">\n")
	text.Write(bytes.TrimRight(data, "\n"))
	fmt.Fprintf(text, "\n</%s>", kind)
}

// file reads the first room bytes of a file that a call names. It refuses what is no
// regular file, and what lies outside of the directories that a consult may see. Of a
// file that is no text it returns no bytes, but its entry says so.
func (m *Manager) file(
	set *Settings, c tool.Caller, req *engine.Request, name string, room int,
) (GivenFile, []byte, error) {
	var none GivenFile
	path, info, err := existing("files", req.Cwd, name)
	switch {
	case err != nil:
		return none, nil, err
	case info.IsDir():
		return none, nil, invalid("files: %s is a directory; name it in add_dirs, or files in it", name)
	case !info.Mode().IsRegular():
		return none, nil, invalid("files: %s is no regular file", name)
	}
	if err := m.allowed(set, c, "files", filepath.Dir(path)); err != nil {
		return none, nil, err
	}
	// It may have become something else meanwhile: a link is not followed, and a
	// pipe is not waited for.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return none, nil, invalid("files: %v", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() {
		return none, nil, invalid("files: %s is no regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(room)))
	if err != nil {
		return none, nil, invalid("files: %v", err)
	}
	file := GivenFile{Path: path, Bytes: info.Size()}
	switch {
	case bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0:
		file.Left, data = "it is no text", nil
	case int64(len(data)) < info.Size():
		file.Left = fmt.Sprintf("%d of its %d bytes", info.Size()-int64(len(data)), info.Size())
		if slices.ContainsFunc(append([]string{req.Cwd}, req.AddDirs...),
			func(dir string) bool { return within(dir, path) }) {
			file.Left += ": read the rest"
		}
	}
	file.Given = len(data)
	return file, data, nil
}
