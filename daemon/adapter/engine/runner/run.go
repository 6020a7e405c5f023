package runner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/gitguard"
	"holdline/daemon/sandbox"
	"holdline/daemon/statedir"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
)

// Limits of a program's output.
const (
	maxLine        = 32 << 20 // bytes of a line
	maxOutput      = 1 << 30  // bytes in all
	maxNoise       = 8 << 20  // bytes of lines that are none of the program's protocol
	maxStderrLines = 20       // kept for faults
	maxStderrLine  = 512      // bytes
	maxStderrRead  = 64 << 10 // bytes of a line that are read at once, and looked through for secrets
)

// Times of progress reports and of what follows the program's end.
const (
	noteEvery = time.Second      // at most one report in that time
	heartbeat = 15 * time.Second // at least one
	pieceTime = 250 * time.Millisecond
	// killPause is the time between two rounds of SIGKILL.
	killPause = 100 * time.Millisecond
	// giveUp is how long a program may take to die of SIGKILL.
	giveUp = time.Minute
)

// linger is how long output is read on that a process left behind may write. It is a variable for tests.
var linger = time.Second

// fileSchema is the file in the run's temporary directory that holds the schema while
// the program runs. Some programs read a schema only from a file.
const fileSchema = "schema.json"

// reporter sends one progress report: the time since the run began, what the run does,
// and figures.
type reporter func(elapsed time.Duration, message string, p engine.Progress)

// run is one run of a program. One goroutine owns it and never waits for the client:
// reports go through the [outbox].
type run struct {
	o      *Options
	params *engine.Params
	info   engine.Info
	cmd    engine.Command
	eng    engine.Engine
	talk   engine.Run
	ear    hearing
	prog   *program
	login  *login
	pipes  pipes
	dirs   []*os.File // the directories of a job, held
	log    *engine.Transcript
	hide   *masker  // replaces secrets
	report reporter // nil if the caller wants none
	torn   bool     // the transcript could not be written whole
	temp   string   // the run's temporary directory if this process made it, and so removes it; else ""

	// The phase, and what decides on the next one.
	began  time.Time
	phase  phase
	timer  *time.Timer // of the phase
	killed time.Time   // when killing began
	why    engine.Why
	stop   *fault.Record // why this process ended the run, for example since it cannot write the prompt

	// What is kept of the program's output.
	rest     []byte // the last line of stdout, if it had no newline
	total    int    // bytes of stdout
	noise    int    // bytes of it that are none of the program's protocol
	errLines []string
	exit     process.Exit

	// What is reported, and when it was.
	active   time.Time // when the program last made progress
	message  string    // what the program does, for people
	progress engine.Progress
	sent     string    // the last message reported
	sentAt   time.Time // when
	piece    strings.Builder
	pieceAt  time.Time // when the last piece was written to the transcript
}

// runOnce runs the program once, blocks until it has ended, and returns what came of
// the run. The end of ctx cancels the run.
//
// If the call names a job's directory, the outcome is in its file when runOnce returns.
// Only if the disk is full is the result line the only copy.
func runOnce(ctx context.Context, o *Options, params engine.Params, report reporter) engine.Outcome {
	r := &run{
		o: o, params: &params, report: report, began: time.Now(), active: time.Now(),
		hide: newMasker(o.Environ, params.Mask),
	}
	err := r.prepare(ctx)
	if err == nil {
		for again := true; again; again = r.next(ctx) {
			r.conduct(ctx)
			r.syncLogin()
		}
		r.deafen()
	} else if ctx.Err() != nil {
		r.why = engine.Cancelled
	}
	out := r.outcome(err)
	if home, ok := r.eng.(engine.Keeper); ok {
		home.Keep(params.Request, r.info, params.Dir, &out)
	}
	r.record(engine.Entry{Kind: engine.KindEnd, Text: string(out.State)})
	r.log.Close()
	if r.torn {
		out.Unwritten = append(out.Unwritten, engine.FileTranscript)
	}
	if r.temp != "" {
		_ = os.RemoveAll(r.temp)
	}
	for _, dir := range r.dirs {
		_ = dir.Close()
	}
	if params.Dir == "" {
		return out
	}
	if out.State == engine.Aborted {
		faultpoint.At("adapter.cancelled")
	}
	out.Job = filepath.Base(params.Dir)
	// The daemon reads the file first, so it must be there before the result line.
	if err := statedir.WriteFile(filepath.Join(params.Dir, engine.FileOutcome),
		append(bulk.Seal(engine.SealName(params.Dir, engine.FileOutcome), jsonrpc.Encode(out)), '\n')); err != nil {
		o.Log.ErrorContext(ctx, "outcome cannot be written", "err", err)
		out.Unwritten = append(out.Unwritten, engine.FileOutcome)
	}
	faultpoint.At("adapter.outcome")
	return out
}

// prepare checks the request, writes what the program needs to disk, opens the
// transcript, and starts the program. If it returns an error, no program was started.
// The transcript must come last before the start: its first line proves that the
// program may have run.
func (r *run) prepare(ctx context.Context) error {
	p := r.params
	var extra []string
	for _, kv := range r.o.Environ {
		if name, _, _ := strings.Cut(kv, "="); slices.Contains(p.Mask, name) {
			extra = append(extra, kv)
		}
	}
	eng := r.o.Engine(r.o.Environ, extra)
	var err error
	if p.Program != nil {
		r.info = *p.Program
	} else if r.info, err = eng.Check(ctx); err != nil {
		return err
	}
	if lacks := r.info.Level(p.Level).Lacks; lacks != "" {
		return fault.New(fault.Denied, fault.Engine, engine.Operation,
			"level %s cannot be enforced on this machine: %s", p.Level, lacks)
	}
	if err := eng.Fits(p.Request); err != nil {
		return err
	}
	if err := r.holdDirs(); err != nil {
		return err
	}
	if p.TempDir == "" {
		if r.temp, err = os.MkdirTemp("", "holdline-engine-"); err != nil {
			return fmt.Errorf("making the run's temporary directory: %w", err)
		}
		p.TempDir = r.temp
	}
	if err := r.beginWith(eng); err != nil {
		return err
	}
	if home, ok := eng.(engine.Furnisher); ok {
		if p.Request, err = home.Furnish(ctx, p.Request, r.info, p.Dir); err != nil {
			return err
		}
	}
	if len(p.Schema) > 0 {
		p.SchemaFile = filepath.Join(p.TempDir, fileSchema)
		if err := statedir.WriteFile(p.SchemaFile, p.Schema); err != nil {
			return err
		}
	}
	if r.cmd, err = guarded(ctx, eng, p.Request, r.info); err != nil {
		return err
	}
	r.eng, r.talk = eng, eng.NewRun(p.Request, r.info)
	if r.cmd.EnforcedBy == "" { // an engine that names nothing must not run as if it were confined
		return fault.New(fault.Denied, fault.Engine, engine.Operation, "engine %s does not say what enforces level %s",
			r.o.Name, r.cmd.Level)
	}
	dirs := r.cmd.Makes
	if r.cmd.Writable != nil {
		dirs = append(slices.Clip(dirs), r.cmd.Writable.Dirs...)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making a directory that the program may write to: %w", err)
		}
	}
	if r.login, err = newLogin(r.cmd.Login); err != nil {
		return err
	}
	if p.Dir != "" {
		start := engine.Entry{Argv: r.cmd.Argv, Level: r.cmd.Level, EnforcedBy: r.cmd.EnforcedBy, Notes: r.cmd.Notes}
		if r.log, err = engine.CreateTranscript(p.Dir, start); err != nil {
			r.torn = true
			return err
		}
	}
	r.prog, err = startProgram(&r.cmd, r.workDir(), r.o.Worker)
	return err
}

// holdDirs opens the directories of a job, and holds them until the run has ended. It returns a denied
// fault if one is not what the daemon has allowed any more: while the job was queued, a link was put in its
// place, or in that of a directory above it, or another directory.
func (r *run) holdDirs() error {
	if r.params.Dir == "" {
		return nil // by hand, paths may have links
	}
	for i, path := range append([]string{r.params.Cwd}, r.params.AddDirs...) {
		dir, err := sandbox.OpenDir(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // the start says so
		}
		now := engine.Directory{}
		if err == nil {
			r.dirs = append(r.dirs, dir)
			var info os.FileInfo
			if info, err = dir.Stat(); err == nil {
				now = engine.DirectoryOf(info)
			}
		}
		if err != nil || i < len(r.params.Held) && now != r.params.Held[i] {
			return fault.New(fault.Denied, fault.Engine, engine.Operation, "cwd: %s has become a link, or another "+
				"directory, since the consult was asked for; ask again", path)
		}
	}
	return nil
}

// workDir returns the path by which the program gets into the directory of the run: that of the directory
// itself, if it is held.
func (r *run) workDir() string {
	if len(r.dirs) > 0 && r.dirs[0].Name() == r.params.Cwd {
		return sandbox.Reopen(r.dirs[0])
	}
	return r.params.Cwd
}

// guarded returns the command of eng for a request, with an environment in which git runs and reads
// nothing that a repository of the request's directories names. The error is a fault.
func guarded(ctx context.Context, eng engine.Engine, req engine.Request, info engine.Info) (engine.Command, error) {
	cmd := eng.Command(req, info)
	env, err := gitguard.Guard(ctx, cmd.Env, append([]string{req.Cwd}, req.AddDirs...)...)
	if err != nil {
		return cmd, fault.New(fault.Denied, fault.Engine, engine.Operation,
			"cwd: the program would run git, and what the repository makes git run cannot be overruled: %v", err)
	}
	cmd.Env = env
	return cmd, nil
}

// conduct drives the run until the program has ended and its output is read. It is the
// only loop of the run: all state of the run changes here.
func (r *run) conduct(ctx context.Context) {
	defer func() { r.prog.close(r.exit != process.Exit{}) }()
	r.timer = time.NewTimer(time.Until(r.began.Add(time.Duration(r.params.TimeoutMS) * time.Millisecond)))
	defer r.timer.Stop()
	stall := time.NewTimer(r.params.Ladder.Stall)
	defer stall.Stop()
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	listen := time.NewTicker(listenEvery)
	defer listen.Stop()
	introduce := time.NewTimer(r.params.Ladder.Introduce)
	defer introduce.Stop()
	for _, m := range r.ear.begun {
		r.record(engine.Entry{Kind: engine.KindSaid, ID: m.ID})
	}
	r.prog.queueInput(r.talk.Begin())
	if r.talk.Once() {
		r.prog.closeStdin()
	}
	r.reportStep("started")
	p, cancelled := r.prog, ctx.Done()
	stdout, stderr := p.stdout, p.stderr
	for r.phase != ended {
		select {
		case data, ok := <-stdout:
			if !ok {
				stdout = nil
				break
			}
			r.readStdout(data)
		case data, ok := <-stderr:
			if !ok {
				stderr = nil
				break
			}
			r.keepStderr(data)
		case r.exit = <-p.exited:
			faultpoint.At("adapter.exited")
			if _, reads := r.talk.(engine.Listener); r.phase == working && !reads {
				r.listen() // what came before the end is for the next start, although the last output is not read yet
			}
			r.enter(drained, r.lingerTime())
		// After the working phase the run is being ended anyway.
		case err := <-p.failed:
			if r.phase == working {
				err = fmt.Errorf("writing the prompt to the program: %w", err)
				r.stop = fault.From(err, fault.Engine, engine.Operation)
				r.terminate()
			}
		case <-cancelled:
			cancelled = nil
			r.cancel()
		case <-r.timer.C:
			r.expire()
		case <-introduce.C:
			if i, ok := r.talk.(engine.Introducer); ok && r.phase == working && !i.Introduced() {
				r.interrupt(engine.Stalled, "it has not introduced itself within "+r.params.Ladder.Introduce.String())
			}
		case <-stall.C:
			stall.Reset(r.checkStall())
		case <-tick.C:
			r.sendProgress()
		case <-listen.C:
			r.listen()
			r.syncLogin()
			r.pipes.end()
		}
		if r.phase == drained && stdout == nil && stderr == nil {
			r.phase = ended
		}
	}
	if ctx.Err() != nil { // the last moments were enough for the cancellation, but not to read it
		r.cancel()
	}
}

// lingerTime returns how long output is read after the program's end. After a program
// that was ended by force there is little to wait for.
func (r *run) lingerTime() time.Duration {
	if r.phase == terminating || r.phase == killing {
		return killPause
	}
	return linger
}

// readStdout handles a line of stdout. If the line, the output or its noise is too long, it
// ends the program with [engine.Overflow] and ignores all that follows.
func (r *run) readStdout(line []byte) {
	if r.why == engine.Overflow {
		return
	}
	r.total += len(line)
	whole, ended := bytes.CutSuffix(line, []byte("\n"))
	if ended {
		r.readLine(whole)
	} else {
		r.rest = line
	}
	if len(line) >= maxLine || r.total > maxOutput || r.noise > maxNoise {
		r.why, r.rest = engine.Overflow, nil
		r.terminate()
	}
}

// readLine handles one line of the program: it records what the line means in the
// transcript, reports progress, and moves the phase on.
func (r *run) readLine(line []byte) {
	for _, e := range r.talk.Line(line) {
		r.countProgress(&e)
		r.pipes.note(&e)
		switch e.Kind {
		case engine.Heard:
			r.ear.open--
			r.heard(e.Text)
		case engine.Write:
			if !r.prog.queueInput(e.Line) && r.why == engine.Itself { // it asks, and does not read
				r.why = engine.Overflow
				r.terminate()
			}
		case engine.Started:
			r.flushPiece()
			r.piece.Reset()
			r.progress.Session, r.progress.Model = e.Session, e.Model
			r.record(engine.Entry{Kind: engine.KindSession, Session: e.Session, Model: e.Model})
			r.reportStep("%s is thinking", cmp.Or(e.Model, r.o.Name))
		case engine.Text:
			r.heardPrompt()
			r.piece.Reset()
			r.record(engine.Entry{Kind: engine.KindText, Text: e.Text, Turn: e.Turn})
			r.reportStep("writing")
		case engine.Piece:
			r.piece.WriteString(e.Text)
			if time.Since(r.pieceAt) >= pieceTime {
				r.flushPiece()
			}
		case engine.ToolUse:
			r.heardPrompt()
			r.record(engine.Entry{Kind: engine.KindTool, Text: e.Text, Turn: e.Turn})
			r.reportStep("%s", e.Text)
		case engine.Retry, engine.Fallback, engine.Limit:
			if e.Window != nil {
				r.progress.Window = e.Window
			}
			if e.Text != "" {
				r.record(engine.Entry{Kind: engine.KindNote, Text: e.Text})
				r.reportStep("%s", e.Text)
			}
		case engine.Stuck:
			if r.phase == working {
				r.terminate()
			}
		case engine.TurnDone:
			r.flushPiece()
			r.piece.Reset()
			r.record(engine.Entry{Kind: engine.KindTurn, CostUSD: e.CostUSD})
			r.endTurn(e.Answered)
		case engine.Noise:
			r.noise += len(line) + 1
		case engine.Waiting:
		}
	}
}

// countProgress notes that the program makes progress, with turn and cost. Retries,
// rate limits and noise are signs of life but no progress: a program that only retries
// is stalled.
func (r *run) countProgress(e *engine.Event) {
	switch e.Kind {
	case engine.Retry, engine.Limit, engine.Noise, engine.Stuck, engine.Write:
		return // signs of life, but not of progress
	case engine.Started, engine.Text, engine.Piece, engine.ToolUse, engine.Fallback, engine.Waiting, engine.TurnDone,
		engine.Heard:
	}
	r.active = time.Now()
	r.progress.Turn = max(r.progress.Turn, e.Turn)
	if e.CostUSD != nil {
		r.progress.CostUSD = e.CostUSD
	}
}

// syncLogin takes over what the program, or the user, has changed in the program's login.
func (r *run) syncLogin() {
	if err := r.login.sync(); err != nil {
		r.o.Log.Warn("login of the program", "err", err)
	}
}

// record writes a line to the transcript, without secrets. If that fails, for example
// on a full disk, the run goes on: only the view of it suffers.
func (r *run) record(e engine.Entry) {
	e.Text = r.hide.Replace(e.Text)
	if err := r.log.Write(e); err != nil && !errors.Is(err, os.ErrClosed) {
		r.o.Log.Warn("transcript cannot be written", "err", err)
		r.torn = true
	}
	r.progress.Seq = r.log.Seq()
}

// flushPiece writes the pieces of an unfinished text to the transcript, as one line. It keeps
// back an end that may be the beginning of a secret, since two halves in two lines would not
// be replaced.
func (r *run) flushPiece() {
	text := r.hide.Replace(r.piece.String())
	shown := len(text) - r.hide.begun(text)
	if shown == 0 {
		return
	}
	r.piece.Reset()
	r.piece.WriteString(text[shown:])
	r.record(engine.Entry{Kind: engine.KindPiece, Text: text[:shown]})
	r.pieceAt = time.Now()
	r.message = "writing"
}

// reportStep sets what the run does, for people, and reports it if a report is due.
func (r *run) reportStep(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	r.sendProgress()
}

// sendProgress reports what the run does: at most once a second, and at least every 15
// s.
func (r *run) sendProgress() {
	if r.report == nil || time.Since(r.sentAt) < noteEvery {
		return
	}
	text := r.talk.Text()
	r.progress.TextBytes = len(text)
	message := r.message
	if message == "writing" && text != "" {
		message = fmt.Sprintf("writing, %d characters so far", len([]rune(text)))
	}
	if message == r.sent && time.Since(r.sentAt) < heartbeat {
		return
	}
	r.sent, r.sentAt = message, time.Now()
	r.report(time.Since(r.began), r.hide.Replace(message), r.progress)
}

// keepStderr keeps one line of stderr, without secrets and cut to maxStderrLine.
func (r *run) keepStderr(line []byte) {
	text := r.hide.Replace(string(line)) // before it is cut: a part of a secret is not found
	text = strings.TrimRight(strings.ToValidUTF8(text[:min(len(text), maxStderrLine)], "\uFFFD"), "\r\n ")
	if text == "" {
		return
	}
	if r.phase != leaving { // what a program says of its own end is no news of the consult
		r.record(engine.Entry{Kind: engine.KindStderr, Text: text})
	}
	r.errLines = append(r.errLines, text)
	if len(r.errLines) > maxStderrLines {
		r.errLines = r.errLines[1:]
	}
}
