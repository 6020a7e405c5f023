package consult

import (
	"context"
	"crypto/rand"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/messages"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/request"
	"holdline/daemon/consult/steps"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
)

// consultSay handles a call of the tool consult_say.
func (m *Manager) consultSay(ctx context.Context, c tool.Call) (tool.Result, error) {
	var a struct {
		ID    string  `json:"consult_id"`
		Text  string  `json:"text"`
		WaitS float64 `json:"wait_s"`
	}
	if err := request.Decode(c.Args, &a); err != nil {
		return tool.Result{}, err
	}
	receipt, err := m.Say(ctx, c.Caller, asking{n: c.N, confirms: true}, a.ID, a.Text)
	if err != nil {
		return tool.Result{}, err
	}
	if a.WaitS == 0 {
		return tool.Result{Text: receipt.Words(), Value: receipt}, nil
	}
	j, done, err := m.find(ctx, &c.Caller, receipt.ConsultID)
	if err == nil && done == nil {
		_, err = j.await(ctx, time.Duration(a.WaitS*float64(time.Second)), ofCall(&c))
	}
	if err != nil {
		return tool.Result{}, err
	}
	var r tool.Result
	if done != nil {
		r = done.Result(0, c.Detail)
	} else if so, ended := j.status(); ended {
		r = so.Result(0, c.Detail)
	} else {
		r = m.pending(j, c.Detail)
	}
	if r.Fault == nil {
		r.Text = receipt.Words() + "\n\n" + r.Text
		r.Value = struct {
			control.Receipt
			Answer any `json:"answer"`
		}{receipt, r.Value}
	}
	return r, nil
}

// SayFromShell says something to a consult for the command line. session is the key by which
// the command asks again.
func (m *Manager) SayFromShell(ctx context.Context, session, id, text string) (control.Receipt, error) {
	return m.Say(ctx, tool.Caller{Session: session, Client: "holdline consult say"}, asking{n: 1, shell: true}, id,
		text)
}

// Say brings a message to the consult with that id. One that is queued or runs gets it by a
// file, see package messages. One that takes no more messages, or ended before its program took
// this one, is continued by a new consult. A call with the same session and number says the
// message once.
func (m *Manager) Say(
	ctx context.Context, c tool.Caller, how asking, id, text string,
) (control.Receipt, error) {
	var none control.Receipt
	switch {
	case strings.TrimSpace(text) == "":
		return none, engine.Invalid("text: must not be blank")
	case len(text) > messages.MaxText:
		return none, engine.Invalid("text: %d bytes are too many, at most %d can be said at once", len(text),
			messages.MaxText)
	}
	if c.Session == "" || how.n == 0 {
		c.Session, how.n = rand.Text(), 1
	}
	r := control.Receipt{Receipt: control.MessageQueued, MessageID: jobdir.ID(c.Session, how.n), ConsultID: id}
	if err := m.awaitRead(ctx, r.MessageID); err != nil {
		return none, err
	}
	if m.job(r.MessageID) != nil { // it was continued when the call was made first
		r.ConsultID = r.MessageID
		return r, nil
	}
	seer := &c
	if how.shell {
		seer = nil
	}
	j, done, err := m.find(ctx, seer, id)
	if err != nil {
		return none, err
	}
	if j != nil {
		if j.isPanel() {
			return none, panelRefusal(&j.Rec)
		}
		if err := j.checkAsked(); err != nil {
			return none, err
		}
		err := messages.Add(j.Dir, messages.Message{ID: r.MessageID, Text: text, From: c.Client})
		faultpoint.At("consult.said")
		switch {
		case errors.Is(err, messages.ErrFull):
			return none, engine.Invalid("consult_id: %s has got %d messages, which is all that it may get", id,
				messages.MaxCount)
		case errors.Is(err, messages.ErrLate): // the end is near
			var ended bool
			if ended, err = j.await(ctx, m.opt.Ladder.Whole(), nil); err == nil && !ended {
				err = fault.New(fault.Timeout, fault.Host, operation,
					"consult %s is ending and takes no more messages; nothing was said: try again when it has ended",
					id)
			}
		case err == nil:
			err = j.awaitHeard(ctx, r.MessageID)
		default:
			err = fault.New(fault.ResourceExhausted, fault.Host, operation,
				"the message cannot be written down: %v", err)
		}
		if err != nil {
			return none, err
		}
		done, _ = j.status()
	}
	if steps.Follow(filepath.Join(m.opt.Dir, done.ID)).Heard(r.MessageID) {
		r.Receipt = control.MessageDelivered
		return r, nil
	}
	if done.State == answer.Queued || done.State == answer.Running {
		return r, nil
	}
	r.ConsultID, err = m.goOn(ctx, c, how, done, text)
	return r, err
}

// goOn begins a consult that continues the session of one that has ended, with a message for
// its prompt, and returns its id.
func (m *Manager) goOn(
	ctx context.Context, c tool.Caller, how asking, old *answer.Answer, text string,
) (id string, err error) {
	rec, err := jobdir.ReadRecord(filepath.Join(m.opt.Dir, old.ID))
	switch {
	case err != nil:
		return "", fault.New(fault.InternalFailure, fault.Host, operation, "consult %s cannot be continued: %v", old.ID,
			err)
	case rec.Members != nil:
		return "", panelRefusal(&rec)
	case old.SessionID == "":
		return "", engine.Invalid("consult_id: %s has ended, and its program keeps no session; ask anew with consult",
			old.ID)
	}
	if how.shell { // the user speaks for the client that has asked
		c.Identity, c.Project, c.Cwd, c.Root = rec.Identity, rec.Project, rec.Request.Cwd, rec.Request.Cwd
	}
	how.follows = old.ID
	was := &rec.Request
	if _, _, err := m.begin(ctx, c, how, &request.Arguments{
		Prompt: text, Cwd: was.Cwd, Session: old.SessionID, Model: was.Model, Effort: was.Effort,
		MaxTurns: was.MaxTurns, Level: was.Level, Engine: rec.Engine, MaxUSD: was.MaxUSD, Schema: was.Schema,
		AddDirs: was.AddDirs, TimeoutS: float64(rec.TimeoutMS) / 1000,
	}); err != nil {
		return "", err
	}
	return jobdir.ID(c.Session, how.n), nil // it may have begun, and ended, for the same call before
}
