package gitguard

import (
	"errors"
	"os/exec"
	"regexp"

	"holdline/daemon/lazyregexp"
)

// FailureError is the error of a git that has failed. Its text has nothing that git quotes of files:
// git quotes the lines of a file that it cannot read, and a repository chooses which one that is.
type FailureError struct {
	Code int    // exit code
	text string // what happened, in our words
}

// Error implements error.
func (f *FailureError) Error() string { return f.text }

// complaint is a pattern of words that git prints itself, and what they mean.
type complaint struct {
	said func() *regexp.Regexp
	text string
}

// known are the complaints that are told apart.
var known = []complaint{
	{
		lazyregexp.New(`(?m)^fatal: detected dubious ownership`),
		"the repository belongs to another user, so git does not read it (git's setting safe.directory allows it)",
	},
	{lazyregexp.New(`(?m)^fatal: not a git repository`), "it is no git repository that can be read"},
	{
		lazyregexp.New(`(?m)^fatal: cannot use bare repository`),
		"it is a bare repository, and git takes none that was not named as one",
	},
	{lazyregexp.New(`(?m)^(fatal|error): (bad config|unable to parse)`), "its configuration cannot be read"},
	{
		lazyregexp.New(`(?m)^(fatal|error): .*(unable to read|bad object|bad tree|object file|loose object|packfile|` +
			`could not fetch|promisor)`),
		"objects are missing or broken",
	},
	{lazyregexp.New(`(?m)^fatal: (Out of memory|mmap failed)`), "it takes more memory than git is given"},
	{lazyregexp.New(`(?m)^(fatal|error): .*index file`), "its index cannot be read"},
	{lazyregexp.New(`(?m)Permission denied`), "one of its files may not be read"},
}

// Explain returns the error of a git that ended with err and wrote stderr: a [*FailureError] if it ran.
func Explain(err error, stderr []byte) error {
	exit, failed := errors.AsType[*exec.ExitError](err)
	if !failed {
		return err
	}
	f := &FailureError{Code: exit.ExitCode(), text: "run it there to see its words"}
	for _, k := range known {
		if k.said().Match(stderr) {
			f.text = k.text
			break
		}
	}
	return f
}
