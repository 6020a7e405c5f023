// Package material decides which files and directories a consult may look at, and puts
// the files and the diff that a call names behind the prompt.
//
// The daemon reads these itself, so it checks each path against the same rules as the
// working directory: a consult must not be a way to read a file that its program is not
// shown.
package material

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
)

// Bounds of what the daemon puts behind a prompt, in bytes.
const (
	maxFile  = 256 << 10 // of one file; the rest is left for the program to read
	maxFiles = 2 << 20   // of all files together
	maxDiff  = 512 << 10
	// MaxShown bounds the part of a diff that an answer repeats.
	MaxShown = 16 << 10
)

// MaxPrompt bounds a prompt with what is put behind it, in bytes. The programs take
// 10 MiB on their standard input.
const MaxPrompt = 9 << 20

// A Reader reads for the consults of one client.
type Reader struct {
	Home     string                   // of the user; "" if unknown
	Roots    []string                 // directories that the configuration allows; absolute
	Project  string                   // the client's project, or the directory in which it was started; "" if unknown
	Variable func(name string) string // returns a variable of the user's environment, for git
}

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

// Lines returns a line for each file, directory and diff of the context, for people.
func (c *Context) Lines() []string {
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

// Brief returns a short copy of the context: the first file, the first directory, and
// the diff without its text. More counts what it leaves out.
func (c *Context) Brief() *Context {
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

// Gather appends the directories of req, the named files and a diff to the prompt of
// req, and returns what it has appended. diff is as in [Reader.diff]; "" is none. Gather
// returns nil if there is nothing to append. The error is a fault.
func (r *Reader) Gather(ctx context.Context, req *engine.Request, files []string, diff string) (*Context, error) {
	if len(files)+len(req.AddDirs) == 0 && diff == "" {
		return nil, nil //nolint:nilnil // there is no context, and nothing is wrong with that
	}
	given := &Context{AddDirs: req.AddDirs}
	var text strings.Builder
	text.WriteString(req.Prompt)
	for _, dir := range req.AddDirs {
		fmt.Fprintf(&text, "\n\n<directory path=%q>You can look around here, too.</directory>", dir)
	}
	room := maxFiles
	for _, name := range files {
		file, data, err := r.file(req, name, min(room, maxFile))
		if err != nil {
			return nil, err
		}
		room -= len(data)
		given.Files = append(given.Files, file)
		quote(&text, "file", file.Path, file.Left, data)
	}
	if diff != "" {
		d, data, err := r.diff(ctx, req.Cwd, diff)
		if err != nil {
			return nil, err
		}
		given.Diff = d
		left := ""
		if d.Cut {
			left = "it goes on: look at the files themselves"
		}
		quote(&text, "diff", d.Of, left, data)
		if len(d.Untracked) > 0 {
			quote(&text, "untracked", "files that are new", "", []byte(strings.Join(d.Untracked, "\n")))
		}
	}
	if text.Len() > MaxPrompt {
		return nil, engine.Invalid("prompt: with its files and its diff it has %d bytes, at most %d can be taken",
			text.Len(), MaxPrompt)
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
func (r *Reader) file(req *engine.Request, name string, room int) (GivenFile, []byte, error) {
	var none GivenFile
	path, info, err := existing("files", req.Cwd, name)
	switch {
	case err != nil:
		return none, nil, err
	case info.IsDir():
		return none, nil, engine.Invalid("files: %s is a directory; name it in add_dirs, or files in it", name)
	case !info.Mode().IsRegular():
		return none, nil, engine.Invalid("files: %s is no regular file", name)
	}
	if err := r.allowed("files", filepath.Dir(path)); err != nil {
		return none, nil, err
	}
	// It may have become something else meanwhile: a link is not followed, and a
	// pipe is not waited for.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return none, nil, engine.Invalid("files: %v", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() {
		return none, nil, engine.Invalid("files: %s is no regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(room)))
	if err != nil {
		return none, nil, engine.Invalid("files: %v", err)
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
