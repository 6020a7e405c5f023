package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"holdline/daemon/engine"
	"holdline/protocol/fault"
)

// leastVersion is the oldest program that has what a run needs.
var leastVersion = [3]int{2, 1, 0}

// needed are the options without which no run is safe; wanted are those that
// make it better where they exist. Both are looked up in the program's own
// help, since what a version number implies is a guess.
var (
	needed = []string{
		"--input-format", "--output-format", "--strict-mcp-config", "--tools", "--permission-mode", "--settings",
		"--setting-sources",
	}
	wanted = []string{optRestricted, optPartial, optNoChrome, optNoSlash, optEffort}
)

// Options of the program that not every version has.
const (
	optRestricted = "--restricted"
	optPartial    = "--include-partial-messages"
	optNoChrome   = "--no-chrome"
	optNoSlash    = "--disable-slash-commands"
	optEffort     = "--effort"
)

// maxProbe bounds what is kept of one probe's output.
const maxProbe = 256 << 10

// checked is what the last check found out.
type checked struct {
	key  string // of the file looked at
	info engine.Info
	err  error
	till time.Time
}

// Check tells whether the program can be used: found, of a version that can
// be driven, and logged in. It takes a fraction of a second the first time;
// what it found holds for a while, failures for a moment, and nothing holds
// once the file has changed. Several callers at once share one look. The
// error is a [*fault.Record].
func (c *Claude) Check(ctx context.Context) (engine.Info, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return engine.Info{}, context.Cause(ctx)
	}
	path, stat, err := c.find()
	if err != nil {
		return engine.Info{}, err
	}
	key := fmt.Sprintf("%s|%d|%d", path, stat.Size(), stat.ModTime().UnixNano())
	if c.last.key == key && time.Now().Before(c.last.till) {
		return c.last.info, c.last.err
	}
	info, err := c.look(ctx, path)
	if ctx.Err() != nil {
		return engine.Info{}, context.Cause(ctx)
	}
	ttl := c.opt.TTL
	if err != nil {
		ttl = failureTTL
	}
	c.restricts.Store(slices.Contains(info.Features, optRestricted))
	c.last = checked{key: key, info: info, err: err, till: time.Now().Add(ttl)}
	return info, err
}

// look asks the program itself.
func (c *Claude) look(ctx context.Context, path string) (engine.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	info := engine.Info{Path: path}
	out, code, err := c.probe(ctx, path, "--version")
	if err != nil {
		return info, err
	}
	version, ok := parseVersion(out)
	switch {
	case !ok:
		return info, c.unfit("%s --version (exit code %d) does not say a version: it is not Claude Code, or broken", path, code)
	case slices.Compare(version[:], leastVersion[:]) < 0:
		return info, c.unfit("Claude Code %s at %s is too old: %s or newer is needed; update it with: claude update",
			dotted(version), path, dotted(leastVersion))
	}
	info.Version = dotted(version)

	var help, status []byte
	var helpErr, statusErr error
	var statusCode int
	var probes sync.WaitGroup
	probes.Go(func() { help, _, helpErr = c.probe(ctx, path, "--help") })
	if credentialed(c.env) {
		info.LoggedIn, info.Account = true, "by the environment"
	} else {
		probes.Go(func() { status, statusCode, statusErr = c.probe(ctx, path, "auth", "status") })
	}
	probes.Wait()
	if helpErr != nil {
		return info, helpErr
	}
	has := options(help)
	for _, opt := range needed {
		if !has[opt] {
			return info, c.unfit("Claude Code %s at %s has no option %s: update it with: claude update", info.Version, path, opt)
		}
	}
	for _, opt := range wanted {
		if has[opt] {
			info.Features = append(info.Features, opt)
		}
	}
	if info.LoggedIn {
		return info, nil
	}
	if statusErr != nil {
		return info, statusErr
	}
	return c.login(info, status, statusCode)
}

// login reads the answer of "auth status". A version that does not know the
// question is believed to be logged in: the run itself will tell.
func (c *Claude) login(info engine.Info, out []byte, code int) (engine.Info, error) {
	var st struct {
		LoggedIn *bool  `json:"loggedIn"`
		Method   string `json:"authMethod"`
		Provider string `json:"apiProvider"`
	}
	if err := json.Unmarshal(out, &st); err != nil || st.LoggedIn == nil {
		info.LoggedIn = true
		info.Account = "unknown"
		return info, nil //nolint:nilerr // no answer to the question is no failure, see above
	}
	if *st.LoggedIn && code == 0 {
		info.LoggedIn = true
		info.Account = st.Method
		if st.Provider != "" && st.Provider != "firstParty" {
			info.Account += " (" + st.Provider + ")"
		}
		return info, nil
	}
	return info, fault.New(fault.Unauthenticated, fault.Engine, operation,
		"Claude Code is not logged in for the daemon: run claude and /login once, or give the daemon "+
			"ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN (consult.env or consult.env_file of the configuration)").
		WithReason(fault.NotLoggedIn)
}

func (c *Claude) unfit(format string, args ...any) error {
	return fault.New(fault.SpawnFailure, fault.Engine, operation, format, args...).WithReason(fault.Version)
}

// probe runs the program for a short question, with nothing on its standard
// input, in a process group that does not outlive the answer. An exit code
// other than 0 is no error.
func (c *Claude) probe(ctx context.Context, path string, args ...string) (stdout []byte, code int, err error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = c.env
	cmd.Dir = "/"
	out, errOut := &capped{limit: maxProbe}, &capped{limit: 4 << 10}
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A child left behind may hold the pipe: it is not waited for.
	cmd.WaitDelay = 500 * time.Millisecond
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	name := strings.Join(args, " ")
	if ctx.Err() != nil {
		return nil, 0, fault.New(fault.SpawnFailure, fault.Engine, operation,
			"claude %s did not answer within %s", name, c.opt.Timeout).WithReason(fault.BadOutput)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if exit.Exited() {
			return out.buf.Bytes(), exit.ExitCode(), nil
		}
		signal := "killed"
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok {
			signal = ws.Signal().String()
		}
		return nil, 0, fault.New(fault.SpawnFailure, fault.Engine, operation, "claude %s was ended by a signal (%s)", name, signal).
			WithCause(fault.Cause{Reason: fault.Killed, Signal: &signal, StderrTail: tail(errOut.buf.String())})
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		cause := fault.Cause{Reason: fault.NotInstalled}
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			text := errno.Error()
			cause.Errno = &text
		}
		return nil, 0, fault.New(fault.SpawnFailure, fault.Engine, operation, "cannot start %s: %v", path, err).WithCause(cause)
	}
	return out.buf.Bytes(), 0, nil
}

// capped keeps the first bytes and swallows the rest.
type capped struct {
	buf   bytes.Buffer
	limit int
}

func (w *capped) Write(p []byte) (int, error) {
	if room := w.limit - w.buf.Len(); room > 0 {
		w.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// tail is the last lines of a text.
func tail(s string) []string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return nil
	}
	return lines[max(len(lines)-5, 0):]
}

// parseVersion reads "2.1.329 (Claude Code)".
func parseVersion(out []byte) (v [3]int, ok bool) {
	word, _, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	word, _, _ = strings.Cut(word, "-")
	parts := strings.Split(word, ".")
	if len(parts) != len(v) {
		return v, false
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

func dotted(v [3]int) string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// options are the long options that a help text lists: words that begin with
// two dashes, cut at the first byte that no option has.
func options(help []byte) map[string]bool {
	out := map[string]bool{}
	for word := range strings.FieldsSeq(string(help)) {
		if !strings.HasPrefix(word, "--") {
			continue
		}
		end := len(word)
		for i, r := range word {
			if r != '-' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
				end = i
				break
			}
		}
		out[word[:end]] = true
	}
	return out
}
