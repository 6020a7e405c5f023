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

// strayEntry is a server that goes astray, as an entry of the configuration.
func (p *place) strayEntry(h hosting, args ...string) map[string]any {
	return map[string]any{
		"command": filepath.Join(programs, "oddserver"),
		"args":    append([]string{"stray", "-ledger", p.effects()}, args...), "holdline": h,
	}
}

// strayServerMain plays a server that does one thing at a time and does not end
// when it should: neither the end of its input nor SIGTERM ends it. It offers
//
//	say {token}    notes "say" and the token, and answers with the token
//	busy {token, ms} notes "busy" and the token, and reads nothing for so long before it answers
//	spin {token, ms} the same, and it computes meanwhile
//	stop {token}   notes "stop" and the token, and stops the process, as by SIGSTOP
//	walk {token, ms} tells its progress six times, after so long each, and notes "step" and the token
//	shut {token}   notes "shut" and the token, answers with the token, and closes "stdin" or "stdout", which is the
//	               token; for stdout it gives no answer, and "late" closes stdin when one more call lies in it, unread
//
//	-ledger FILE   where each call is noted, with its process
//	-slow D        it reads nothing for that long at first
//	-talk          and writes to stderr meanwhile
//	-once FILE     -slow holds for the first process alone: it makes the file
func strayServerMain(args []string) int {
	signal.Ignore(syscall.SIGTERM)
	f := flag.NewFlagSet("strayserver", flag.ContinueOnError)
	s := &standIn{
		name: "stray", tools: []string{"say", "busy", "spin", "stop", "shut", "walk"}, in: os.Stdin, out: os.Stdout,
	}
	f.StringVar(&s.ledger, "ledger", "", "")
	slow, talk, once := f.Duration("slow", 0, ""), f.Bool("talk", false, ""), f.String("once", "", "")
	if err := f.Parse(args); err != nil {
		return 2
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

// strayCall does what a tool of the stray server does.
func (s *standIn) strayCall(m *toolMessage) {
	a := &m.Params.Arguments
	s.note(m.Params.Name + " " + a.Token)
	switch {
	case m.Params.Name == "busy":
		time.Sleep(time.Duration(a.MS) * time.Millisecond)
	case m.Params.Name == "spin":
		for end := time.Now().Add(time.Duration(a.MS) * time.Millisecond); time.Now().Before(end); {
		}
	case m.Params.Name == "walk":
		for step := range 6 {
			time.Sleep(time.Duration(a.MS) * time.Millisecond)
			s.line(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, m.Params.Meta.Progress, step+1))
			s.note("step " + a.Token)
		}
	case m.Params.Name == "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(time.Hour) // another thread may have taken the signal, and this one would answer
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
