// Package gitguard keeps git from running a program, and from reading or writing a file, that the
// configuration of a repository names. The repository may be hostile: a filter, a pager or an
// editor of its choice would run wherever a program asks git what has changed.
//
// Variables of git's environment overrule every configuration, but only by the name of each
// setting. So the package asks git for the names that the configuration has ([Read]), and returns
// what overrules those that name a program or a file. The diff of a consult and each program of a
// consult get the same.
//
// The settings do not pass to the processes that git starts in submodules, so git is told to look
// into none.
package gitguard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdline/daemon/command"
)

// Bounds of what git may take.
const (
	// timeout bounds the questions about one directory together.
	timeout = 20 * time.Second
	// maxList bounds a list of settings, in bytes.
	maxList = 1 << 20
	// maxSettings bounds the names of settings that are overruled, in bytes: each becomes a
	// variable of git's environment.
	maxSettings = 256 << 10
	// maxSetting bounds one name with its value, in bytes. Linux allows 128 KiB for a variable.
	maxSetting = 64 << 10
	// maxErrors bounds what is kept of standard error, in bytes.
	maxErrors = 4 << 10
)

// ErrTooMany is the error of a configuration that has more settings than can be overruled.
var ErrTooMany = errors.New("its configuration has too many settings to be sure that git runs no program of its " +
	"choice; shorten .git/config")

// Least is the oldest version of git that the environment can overrule, and that follows no
// symbolic link .gitattributes.
var Least = [3]int{2, 32}

// limited starts git with bounds of its memory, in KiB, and of its processor time, in seconds. A
// system that does not know such a bound goes without it.
const limited = `ulimit -v 4194304 2>/dev/null; ulimit -t 30 2>/dev/null; exec "$0" "$@"`

// Command returns the command that runs the git at path with args in the directory dir. Its memory
// and its processor time are bounded.
func Command(path, dir string, env []string, args ...string) command.Command {
	return command.Command{
		Path: "/bin/sh", Args: append([]string{"-c", limited, path, "--no-pager"}, args...), Dir: dir, Env: env,
		Stderr: maxErrors,
	}
}

// Ask runs git with args, where the repository is, and returns the first limit bytes of what it
// prints. Several goroutines call it at once.
type Ask func(limit int, args ...string) ([]byte, error)

// An answer is what [Ask] returns.
type answer struct {
	out []byte
	err error
}

// all asks several questions at once: each takes some milliseconds, for which a user waits. It blocks until
// all are answered, and returns the answers in the order of the questions.
func (ask Ask) all(limit int, questions ...[]string) []answer {
	answers := make([]answer, len(questions))
	var asked sync.WaitGroup
	for i, args := range questions {
		asked.Go(func() { answers[i].out, answers[i].err = ask(limit, args...) })
	}
	asked.Wait()
	return answers
}

// Settings overrule the configuration of a repository.
type Settings struct {
	pairs   []string // name and value by turns
	Partial bool     // the repository is a partial clone, whose git would fetch what it lacks
	Moved   bool     // the repository names another work tree than the directory that has .git
}

// Fixed returns what overrules settings of every repository, whatever its configuration has.
func Fixed() Settings { return Settings{pairs: slices.Clone(fixed)} }

// Read asks git for the configuration that counts in a directory, and returns what overrules it.
// top is the directory that has .git, or "". The error is that of ask, or [ErrTooMany].
func Read(ask Ask, top string) (Settings, error) {
	s := Fixed()
	answers := ask.all(maxList, append([][]string{{"config", "--null", "--show-scope", "--list"}}, placesOfModules(top)...)...)
	list := answers[0]
	if list.err != nil {
		return s, list.err
	}
	if len(list.out) == maxList {
		return s, ErrTooMany
	}
	fields := strings.Split(strings.TrimSuffix(string(list.out), "\x00"), "\x00")
	users, own, names := map[string]string{}, map[string]bool{}, []string{}
	for i := 0; i+1 < len(fields); i += 2 {
		name, value, _ := strings.Cut(fields[i+1], "\n")
		switch fields[i] {
		case "command":
			continue // by the environment
		case "system", "global":
			users[name] = value
		default:
			own[name] = true
		}
		names = append(names, name)
	}
	modules, err := submodules(answers[1:])
	if err != nil {
		return s, err
	}
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, "submodule."); ok {
			if dot := strings.LastIndexByte(rest, '.'); dot >= 0 {
				modules = append(modules, rest[:dot])
			}
		}
	}
	for _, module := range modules {
		name := "submodule." + module + ".ignore"
		names, own[name] = append(names, name), true
	}
	slices.Sort(names)
	size := 0
	for _, name := range slices.Compact(names) {
		switch {
		case name == "extensions.partialclone",
			strings.HasPrefix(name, "remote.") && strings.HasSuffix(name, ".promisor"):
			s.Partial = true
		case name == "core.worktree":
			s.Moved = true
		}
		r, ok := ruleOf(name)
		if !ok || !own[name] && !r.always {
			continue
		}
		value, isUsers := users[name]
		if r.always || !isUsers {
			value = r.value
		}
		if size += len(name); size > maxSettings || len(name)+len(value) > maxSetting {
			return s, ErrTooMany
		}
		s.pairs = append(s.pairs, name, value)
	}
	return s, nil
}

// placesOfModules returns the questions for the submodules that the work tree, the index and the last
// commit name in .gitmodules.
func placesOfModules(top string) [][]string {
	if top == "" {
		return nil
	}
	question := func(place ...string) []string {
		return append([]string{"config", "--null", "--name-only", "--list"}, place...)
	}
	places := [][]string{question("--blob", ":.gitmodules"), question("--blob", "HEAD:.gitmodules")}
	file := filepath.Join(top, ".gitmodules")
	if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
		places = append(places, question("--file", file))
	}
	return places
}

// submodules returns the names of submodules from the answers to the questions of [placesOfModules].
func submodules(answers []answer) ([]string, error) {
	var names []string
	for _, a := range answers {
		if a.err != nil {
			if _, failed := errors.AsType[*FailureError](a.err); failed {
				continue // there is none
			}
			return nil, a.err
		}
		if len(a.out) == maxList {
			return nil, ErrTooMany
		}
		for name := range strings.SplitSeq(string(a.out), "\x00") {
			rest, ok := strings.CutPrefix(name, "submodule.")
			if dot := strings.LastIndexByte(rest, '.'); ok && dot >= 0 {
				names = append(names, rest[:dot])
			}
		}
	}
	return names, nil
}

// Environ returns the variables that hand these settings to git.
func (s Settings) Environ() []string {
	env := append(slices.Clone(variables), "GIT_CONFIG_COUNT="+strconv.Itoa(len(s.pairs)/2))
	for i := 0; i < len(s.pairs); i += 2 {
		n := strconv.Itoa(i / 2)
		env = append(env, "GIT_CONFIG_KEY_"+n+"="+s.pairs[i], "GIT_CONFIG_VALUE_"+n+"="+s.pairs[i+1])
	}
	return env
}

// Top returns the directory at or above dir that has .git, or "".
func Top(dir string) string {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// ParseVersion returns the version in the answer to "git version"; false if there is none.
func ParseVersion(answer []byte) (version [3]int, ok bool) {
	// Builds between versions have no third number.
	n, _ := fmt.Sscanf(string(answer), "git version %d.%d.%d", &version[0], &version[1], &version[2])
	return version, n >= 2
}

// Guard returns the environment env of a program that works in dirs, with what keeps its git from
// running or reading what the repositories there name.
func Guard(ctx context.Context, env []string, dirs ...string) ([]string, error) {
	path, _ := command.LookPath("git", command.Variable(env, "PATH"))
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	all, moved := Fixed(), ""
	for _, dir := range dirs {
		top := Top(dir)
		if top == "" || path == "" {
			continue // there is nothing to run, or nothing that runs it
		}
		ask := func(limit int, args ...string) ([]byte, error) {
			cmd := Command(path, dir, with(env, Fixed()), args...)
			cmd.Stdout = limit
			out, err := cmd.Run(ctx)
			if ctx.Err() != nil {
				return nil, fmt.Errorf("git takes too long to read the configuration of the repository in %s", top)
			}
			return out.Stdout, Explain(err, out.Stderr)
		}
		var answer []byte
		var failed error // of the version
		var asked sync.WaitGroup
		asked.Go(func() { answer, failed = ask(maxErrors, "version") })
		s, err := Read(ask, top)
		asked.Wait()
		if failed != nil {
			return nil, failed
		}
		if version, ok := ParseVersion(answer); !ok || slices.Compare(version[:], Least[:]) < 0 {
			return nil, fmt.Errorf("%s is too old to be kept from running programs of a repository; "+
				"update git to %d.%d or newer", path, Least[0], Least[1])
		}
		if err != nil {
			return nil, fmt.Errorf("the git repository in %s: %w", top, err)
		}
		all.pairs = append(all.pairs, s.pairs[len(fixed):]...)
		if s.Moved && moved == "" {
			moved = top
		}
	}
	env = with(env, all)
	if moved != "" {
		env = append(env, "GIT_WORK_TREE="+moved)
	}
	return env, nil
}

// with returns env with settings behind those that it has.
func with(env []string, s Settings) []string {
	var out, pairs []string
	count, _ := strconv.Atoi(command.Variable(env, "GIT_CONFIG_COUNT"))
	for i := range min(max(count, 0), maxSettings) {
		n := strconv.Itoa(i)
		if name := command.Variable(env, "GIT_CONFIG_KEY_"+n); name != "" {
			pairs = append(pairs, name, command.Variable(env, "GIT_CONFIG_VALUE_"+n))
		}
	}
	s.pairs = append(pairs, s.pairs...)
	added := s.Environ()
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		replaced := slices.ContainsFunc(added, func(a string) bool { return strings.HasPrefix(a, name+"=") })
		if !replaced && !strings.HasPrefix(name, "GIT_CONFIG_KEY_") && !strings.HasPrefix(name, "GIT_CONFIG_VALUE_") {
			out = append(out, kv)
		}
	}
	return append(out, added...)
}
