package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// strayEntry returns the stray server as an entry of the configuration.
func (p *place) strayEntry(h hosting, args ...string) map[string]any {
	return map[string]any{
		"command": filepath.Join(programs, "oddserver"),
		"args":    append([]string{"stray", "-ledger", p.effects()}, args...), "holdline": h,
	}
}

// strayServerMain plays a server that does one thing at a time and does not end when it
// should: neither at the end of its input nor on SIGTERM. It offers
//
//	say {token}      notes "say" and the token, and answers with the token
//	busy {token, ms} notes "busy" and the token, and answers after ms milliseconds in which it reads nothing
//	hold {token}     the same, and it answers once there is a file at its token
//	spin {token, ms} the same, and it computes in that time
//	stop {token}     notes "stop" and the token, and stops the process, as SIGSTOP does
//	walk {token, ms} reports its progress six times, every ms milliseconds, and notes "step" and the token
//	shut {token}     notes "shut" and the token, which says what it does: "stdin" closes stdin
//	                 and answers; "stdout" closes stdout, and cannot answer; "late" answers,
//	                 and closes stdin when one more call is in it, unread
//
//	-ledger FILE   file in which it notes each call, with its pid
//	-slow D        reads nothing for this time at first
//	-await FILE    reads nothing until there is this file
//	-talk          writes to stderr in that time
//	-once FILE     -slow applies only to the first process, which makes the file
func strayServerMain(args []string) int {
	signal.Ignore(syscall.SIGTERM)
	f := flag.NewFlagSet("strayserver", flag.ContinueOnError)
	s := &standIn{
		name: "stray", tools: []string{"say", "busy", "hold", "spin", "stop", "shut", "walk"}, in: os.Stdin, out: os.Stdout,
	}
	f.StringVar(&s.ledger, "ledger", "", "")
	slow, talk, once := f.Duration("slow", 0, ""), f.Bool("talk", false, ""), f.String("once", "", "")
	await := f.String("await", "", "")
	if err := f.Parse(args); err != nil {
		return 2
	}
	for *await != "" && !exists(*await) {
		time.Sleep(20 * time.Millisecond)
	}
	if !isFirst(*once) {
		*slow = 0
	}
	for end := time.Now().Add(*slow); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if *talk {
			fmt.Fprintln(os.Stderr, "strayserver: downloading")
		}
	}
	code := s.serve(func(m *toolMessage) int {
		if m.Method != "tools/call" {
			s.reply(m)
			return goOn
		}
		s.strayCall(m)
		return goOn
	})
	if code == 0 {
		time.Sleep(time.Hour) // the end of its input does not end it
	}
	return code
}

// strayCall carries out a call of the stray server.
func (s *standIn) strayCall(m *toolMessage) {
	a := &m.Params.Arguments
	s.note(m.Params.Name + " " + a.Token)
	switch {
	case m.Params.Name == "busy":
		time.Sleep(time.Duration(a.MS) * time.Millisecond)
	case m.Params.Name == "hold":
		for !exists(a.Token) {
			time.Sleep(20 * time.Millisecond)
		}
	case m.Params.Name == "spin":
		// Half of the time, of which a busy machine leaves it enough.
		for end := time.Now().Add(time.Duration(a.MS) * time.Millisecond); time.Now().Before(end); {
			for begun := time.Now(); time.Since(begun) < 50*time.Millisecond; {
			}
			time.Sleep(50 * time.Millisecond)
		}
	case m.Params.Name == "walk":
		for step := range 6 {
			time.Sleep(time.Duration(a.MS) * time.Millisecond)
			s.line(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, m.Params.Meta.Progress, step+1))
			s.note("step " + a.Token)
		}
	case m.Params.Name == "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(time.Hour) // another thread may have got the signal, and this one must not answer
	case m.Params.Name == "shut" && a.Token == "stdout":
		os.Stdout.Close()
		time.Sleep(time.Hour)
	}
	if m.Params.Name == "shut" && a.Token == "stdin" {
		os.Stdin.Close()
	}
	s.answer(m.ID, textResult(a.Token))
	if m.Params.Name == "shut" {
		_, _ = unix.Poll([]unix.PollFd{{Fd: 0, Events: unix.POLLIN}}, -1)
		os.Stdin.Close()
		time.Sleep(time.Hour)
	}
}
