package hostscmd

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/doctor"
	"holdline/daemon/plural"
	"holdline/daemon/supervisor/far"
	"holdline/protocol/farwire"
	"holdline/protocol/process"
)

// needed are the checks of holdline doctor that concern servers which a daemon elsewhere runs on
// that machine: it needs neither a daemon nor clients of its own.
var needed = []string{
	"configuration", "state directory", "disk of the state directory", "PATH of hosted servers", "orphans",
}

// check starts a server on a host, ends it again, and prints what holdline doctor there says about
// the checks that are needed. It returns an error if something is wrong.
func (h *hosts) check(cmd *cobra.Command, host string) error {
	begun := time.Now()
	try := func(s *far.Session) error { return tryWorker(cmd, s) }
	if err := far.Visit(cmd.Context(), host, h.proc.Environ(), 0, try); err != nil {
		return fmt.Errorf("a server cannot be started on %s: %w", host, err)
	}
	_ = console.Say(cmd, "a server was started there, and ended, in %v", time.Since(begun).Round(time.Millisecond))
	out, err := h.run(cmd.Context(), host, far.Script("doctor --json"), nil)
	found, jerr := readFindings(out)
	if jerr != nil { // with problems it fails, and prints them
		return fmt.Errorf("holdline doctor on %s: %w", host, errors.Join(err, jerr))
	}
	well, problems := 0, 0
	for _, f := range found {
		switch {
		case !slices.Contains(needed, f.Check):
		case f.State == doctor.OK:
			well++
		default:
			if f.State == doctor.Problem {
				problems++
			}
			w := cmd.OutOrStdout()
			console.Line(w, 9, "%-8v %s: %s", f.State, f.Check, f.What)
			console.Line(w, 15, "         why:  %s", f.Why)
			console.Line(w, 15, "         fix:  %s", f.Fix)
		}
	}
	_ = console.Say(cmd, "holdline doctor there: %s passed", plural.Count(well, "check"))
	if problems > 0 {
		return cmdenv.WithHint(fmt.Errorf("holdline doctor on %s found %s", host, plural.Count(problems, "problem")),
			"holdline hosts doctor "+host)
	}
	return nil
}

// readFindings reads what holdline doctor --json has printed. A profile may have printed something before.
func readFindings(out string) (found []doctor.Finding, err error) {
	begin := max(0, strings.LastIndex("\n"+out, "\n["))
	return found, json.Unmarshal([]byte(out[begin:]), &found)
}

// tryWorker starts a worker, and ends it again: so its directories, its socket and the start of
// processes are known to work.
func tryWorker(cmd *cobra.Command, s *far.Session) error {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	spec := process.Spec{
		Version: process.Newest(), ID: "probe-" + hex.EncodeToString(b[:]), Kind: process.KindServer, Name: "probe",
		Argv: []string{"cat"}, Far: &process.Far{Host: s.Host}, Program: cmdenv.Version,
		Orphan: process.Orphan{AfterMS: time.Minute.Milliseconds()},
	}
	spec.SetDefaults()
	_, err := s.Ask(cmd.Context(), farwire.Request{Op: farwire.Start, ID: spec.ID, Spec: &spec})
	if err == nil {
		_, err = s.Ask(cmd.Context(), farwire.Request{Op: farwire.Remove, ID: spec.ID})
	}
	return err
}
