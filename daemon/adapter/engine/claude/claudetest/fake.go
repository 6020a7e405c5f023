package claudetest

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// FakeEnv is the variable that makes a test binary run as the fake. Its value says how the
// installed program behaves: "ok", or one of the words listed at [FakeMain].
const FakeEnv = "FAKE_CLAUDE"

// FakeRuns is a file in [Writable] in which each run of the fake notes that it was started.
const FakeRuns = "fake-runs"

// notPlain is what the names of the directories of transcripts have hyphens for.
var notPlain = regexp.MustCompile(`[^0-9A-Za-z]`)

// Writable returns the directory of transcripts, below the user's home, in which a program may write that
// works in cwd and is held by the kernel.
func Writable(home, cwd string) string {
	return filepath.Join(home, ".claude", "projects", notPlain.ReplaceAllString(cwd, "-"))
}

// fakeModel is the name of the model that answers in the fake.
const fakeModel = "claude-stand-in-1"

// FakeMain plays Claude Code: its version, help and login, and runs of print mode with
// stream-json on both sides. It returns the exit code.
//
// The value of [FakeEnv] in env says how the installed program behaves: "old" (its version is
// too old), "plain" (it has no --restricted), "garbage" (it prints no version), "silent" (it
// never answers a question), "logged-out", "no-auth" (it does not know "auth status");
// anything else is a good one.
//
// If there is the file [FakeRuns], each run appends its pid there before it reads its prompt.
//
// Steps of a script work as with [API] (error -1 is an API that cannot be reached). Do adds
// what no API can bring about:
//
//	garbage     prints n lines that are no JSON, and exits
//	flood       prints n MiB of such lines, and exits; flood-line: as one line
//	chatter     prints n MiB of such lines, and takes the next step
//	half        prints the first part of an envelope, and exits
//	die         kills itself with SIGKILL
//	exit        exits with code n and a line on stderr
//	silent      exits without output
//	hang        prints nothing more until it is interrupted or gets SIGTERM
//	stubborn    as hang; after an interrupt the next turn hangs, too
//	deaf        as hang, and ignores interrupts, the end of input and SIGTERM
//	told        waits until the host has sent another message, and takes the next step
//	linger      takes the next step; later the program does not end with its input
//	talk        says n KiB of [Talk], uses a hundred tools and takes the next step; it answers
//	            messages without a script with as much
//	too-long    answers that the prompt is too long
//	ledger      appends a line to the file that Message names, with the step's text and the
//	            pid: proof that the program got this far
//	stray       runs [StrayScript] with the file Message
//	grandchild  starts a process in a session of its own that holds stdout, and says its pid
//	env, args, cwd  answers with that, as JSON
//	attempt     tries to write to the directories that Message lists, a line each, but the
//	            first; answers with the ways that worked, as JSON
//	hear        takes the next step; from then on it notes in the file that Message names what
//	            it hears: "interrupt", "end" of its input and "SIGTERM", each with the time in
//	            Unix ms
func FakeMain(args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	f := &fake{args: args, out: bufio.NewWriter(stdout), errOut: stderr, env: env, retries: 10}
	defer f.out.Flush()
	kind := f.getenv(FakeEnv)
	switch {
	case kind == "silent":
		f.deaf()
		f.pause(forever)
	case slices.Contains(args, "--version"):
		f.printf("%s\n", fakeVersion(kind))
		return 0
	case slices.Contains(args, "--help"):
		f.printf("Usage: claude [options]\n\nOptions:\n")
		for _, opt := range fakeOptions(kind) {
			f.printf("  %s <x>   an option\n", opt)
		}
		return 0
	case len(args) >= 2 && slices.Equal(args[len(args)-2:], []string{"auth", "status"}) && kind != "no-auth":
		in := kind != "logged-out" || strings.Contains(strings.Join(args, " "), `"apiKeyHelper":`)
		f.emit(map[string]any{"loggedIn": in, "authMethod": "claude.ai", "apiProvider": "firstParty"})
		if in {
			return 0
		}
		return 1
	}
	if !f.parse(kind) {
		return 1
	}
	f.noteRun()
	return f.run(stdin)
}

// noteRun appends the pid to [FakeRuns], if that file exists.
func (f *fake) noteRun() {
	cwd, err := os.Getwd()
	if err != nil {
		return
	}
	runs, err := os.OpenFile(filepath.Join(Writable(f.getenv("HOME"), cwd), FakeRuns), os.O_APPEND|os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		_, err = fmt.Fprintln(runs, os.Getpid())
		err = errors.Join(err, runs.Close())
	}
	if err != nil {
		_, _ = fmt.Fprintln(f.errOut, FakeRuns+":", err)
	}
}

// fakeVersion returns what --version prints.
func fakeVersion(kind string) string {
	switch kind {
	case "old":
		return "1.0.3 (Claude Code)"
	case "plain":
		return "2.1.197 (Claude Code)"
	case "garbage":
		return "Segmentation fault, or so"
	}
	return "2.1.329 (Claude Code)"
}

// fakeOptions returns the options that a version has. All before --print take a value.
func fakeOptions(kind string) []string {
	opts := []string{
		"--input-format", "--output-format", "--tools", "--permission-mode", "--settings", "--setting-sources",
		"--allowedTools", "--model", "--effort", "--max-turns", "--resume", "--max-budget-usd", "--json-schema",
		"--add-dir", "--print", "--verbose", "--strict-mcp-config", "--disable-slash-commands", "--no-chrome",
		"--fork-session",
		"--include-partial-messages",
	}
	if kind != "plain" {
		opts = append(opts, "--restricted", "--replay-user-messages")
	}
	return opts
}

type fake struct {
	args   []string
	env    []string
	out    *bufio.Writer
	errOut io.Writer

	model    string
	maxTurns int
	resume   string
	partial  bool
	retries  int

	session  string
	lines    chan input
	queue    []input // user messages that arrived during a turn
	eof      bool
	stubborn bool
	unheard  bool // set by deaf: interrupts are ignored
	lingers  bool
	more     []string // messages that the model got in this turn, and has not said
	talks    int      // KiB of text that messages without a script are answered with
	hears    string   // file for what the program hears; "" for none
	term     chan struct{}
	code     int
	requests int // to the model, in this turn
	results  int
}

// input is a line from the host program.
type input struct {
	Type    string `json:"type"`
	ID      string `json:"request_id"`
	Request struct {
		Subtype string `json:"subtype"`
	} `json:"request"`
	Message turn   `json:"message"`
	UUID    string `json:"uuid"`
}

func (f *fake) getenv(name string) string {
	for _, kv := range slices.Backward(f.env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

func (f *fake) printf(format string, args ...any) { _, _ = fmt.Fprintf(f.out, format, args...) }

// emit writes one line of the output stream.
func (f *fake) emit(v map[string]any) {
	if f.session != "" {
		v["session_id"] = f.session
	}
	b, err := json.Marshal(v)
	if err != nil {
		b = []byte(`{}`)
	}
	_, _ = f.out.Write(append(b, '\n'))
	_ = f.out.Flush()
}

// parse reads the command line as strictly as the real program does.
func (f *fake) parse(kind string) bool {
	known := fakeOptions(kind)
	fail := func(format string, args ...any) bool {
		_, _ = fmt.Fprintf(f.errOut, "error: "+format+"\n", args...)
		return false
	}
	set := map[string]string{}
	for i := 0; i < len(f.args); i++ {
		opt := f.args[i]
		if opt == "-p" {
			opt = "--print"
		}
		name, value, joined := strings.Cut(opt, "=")
		at := slices.Index(known, name)
		switch {
		case at >= 0 && joined && at < slices.Index(known, "--print"):
			set[name] = value
		case at < 0 && strings.HasPrefix(opt, "-"):
			return fail("unknown option '%s'", opt)
		case at < 0:
			return fail("the prompt belongs on standard input, not %q", opt)
		case at < slices.Index(known, "--print"):
			if i++; i >= len(f.args) {
				return fail("option '%s' argument missing", opt)
			}
			set[opt] = f.args[i]
		default:
			set[opt] = "yes"
		}
	}
	for _, opt := range []string{"--print", "--verbose", "--strict-mcp-config"} {
		if set[opt] == "" {
			return fail("%s is needed here", opt)
		}
	}
	if set["--input-format"] != "stream-json" || set["--output-format"] != "stream-json" {
		return fail("only stream-json is spoken here")
	}
	f.model = fakeModel
	if m := set["--model"]; m != "" {
		f.model = m
	}
	f.maxTurns, _ = strconv.Atoi(set["--max-turns"])
	f.resume, f.partial = set["--resume"], set["--include-partial-messages"] != ""
	if n, err := strconv.Atoi(f.getenv("CLAUDE_CODE_MAX_RETRIES")); err == nil {
		f.retries = n
	}
	return true
}

// run runs a session: one turn for each user message, until stdin ends. It returns the exit
// code.
func (f *fake) run(stdin io.Reader) int {
	var id [16]byte
	_, _ = rand.Read(id[:])
	f.session = fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	f.term = make(chan struct{})
	f.lines = make(chan input)
	stop := f.onTerm()
	defer stop()
	// The reader ends with its input or with the process: a read of standard input cannot
	// be cancelled.
	var reader sync.WaitGroup
	reader.Go(func() { f.read(stdin) })

	if strings.HasPrefix(f.resume, "00000000") {
		f.emit(map[string]any{
			"type": "result", "subtype": "error_during_execution", "is_error": true, "num_turns": 0,
			"total_cost_usd": 0,
			"errors":         []string{"No conversation found with session ID: " + f.resume},
		})
		return 1
	}
	for {
		msg, ok := f.next()
		if !ok {
			return f.code
		}
		if end := f.turn(msg); end {
			return f.code
		}
	}
}

// read parses lines of stdin until its end.
func (f *fake) read(stdin io.Reader) {
	defer close(f.lines)
	r := bufio.NewReaderSize(stdin, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		var in input
		if json.Unmarshal(line, &in) == nil {
			f.lines <- in
		}
		if err != nil {
			return
		}
	}
}

// next returns the next user message; ok is false at the end of input.
func (f *fake) next() (input, bool) {
	for {
		if len(f.queue) > 0 {
			msg := f.queue[0]
			f.queue = f.queue[1:]
			f.replay(&msg)
			return msg, true
		}
		if f.eof && !f.lingers {
			return input{}, false
		}
		select {
		case in, ok := <-f.lines:
			f.heard(in, ok)
		case <-f.term:
			f.code = 128 + int(syscall.SIGTERM)
			return input{}, false
		}
	}
}

// replay repeats a message that the model gets, if it has a uuid.
func (f *fake) replay(msg *input) {
	if msg.UUID != "" && slices.Contains(f.args, "--replay-user-messages") {
		f.emit(map[string]any{"type": "user", "uuid": msg.UUID, "isReplay": true, "message": map[string]any{
			"role": "user", "content": []any{},
		}})
	}
}

// heard handles a line of input, and reports whether it is an interrupt.
func (f *fake) heard(in input, ok bool) bool {
	switch {
	case !ok:
		f.eof, f.lines = true, nil
		f.noteHeard("end")
	case in.Type == "user":
		f.queue = append(f.queue, in)
	case in.Type == "control_request" && in.Request.Subtype == "interrupt":
		f.noteHeard("interrupt")
		if f.unheard {
			return false
		}
		f.emit(map[string]any{
			"type": "control_response", "response": map[string]any{"subtype": "success", "request_id": in.ID},
		})
		return true
	}
	return false
}

// ending says why a pause ended.
type ending int

const (
	timeUp ending = iota
	interrupted
	terminated
)

// forever, in seconds, is longer than any test.
const forever = 3600

// pause waits for seconds, unless the host sends an interrupt or the process gets SIGTERM.
func (f *fake) pause(seconds float64) ending {
	t := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return timeUp
		case in, ok := <-f.lines:
			if f.heard(in, ok) {
				return interrupted
			}
		case <-f.term:
			f.noteHeard("SIGTERM")
			if !f.unheard {
				return terminated
			}
			f.term = nil
		}
	}
}

// onTerm makes SIGTERM end a pause, because the real program handles SIGTERM, too. It
// returns a func that undoes this.
func (f *fake) onTerm() func() {
	c := make(chan osSignal, 1)
	signal.Notify(c, syscall.SIGTERM)
	done, term := make(chan struct{}), f.term
	var wait sync.WaitGroup
	wait.Go(func() {
		select {
		case <-c:
			close(term)
		case <-done:
		}
	})
	return func() {
		signal.Stop(c)
		close(done)
		wait.Wait()
	}
}

// deaf makes the process ignore interrupts and SIGTERM.
func (f *fake) deaf() {
	f.unheard = true
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	if f.hears == "" {
		signal.Ignore(syscall.SIGTERM)
	}
}

// noteHeard notes in the file for that what the program hears, if there is one.
func (f *fake) noteHeard(what string) {
	if f.hears != "" {
		f.appendLine(f.hears, fmt.Sprintf("%s %d", what, time.Now().UnixMilli()))
	}
}
