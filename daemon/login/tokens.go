package login

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"holdline/daemon/filewatch"
	"holdline/protocol/fault"
)

// Options of [Tokens].
type Options struct {
	Name    string // of the server, for texts
	URL     string // of the server
	Store   *Store
	Target  string // id
	Version string // of this program
	Log     *slog.Logger
	// Discover finds the token endpoint of a client without a person, whose grant is
	// [GrantClient]. The login has issuer, resource and scopes, and no tokens yet. If Discover is
	// nil only persons log in.
	Discover func(context.Context, *Client, string, Challenge, *Credentials) (Endpoint, Login, error)
}

// Tokens gives the requests to one server their token, and renews it when a request needs
// it. Any number of processes may do so for the same login: one of them renews. Make it with
// [NewTokens]; the caller must call [Tokens.Close]. It is safe for concurrent use.
type Tokens struct {
	o     Options
	stop  context.CancelFunc // ends waits for locks
	alive context.Context    //nolint:containedctx // of renewals, which outlive the requests that need them
	work  sync.WaitGroup     // renewals under way

	mu      sync.Mutex         // held for reads of small files, by requests of this server only
	target  Target             // guarded by mu, as all below
	login   Login              // of the target, if there is one
	stamps  [2]filewatch.Stamp // of the files that both were read from
	known   bool               // both were read
	unsaved *Login             // renewed, and not on disk yet
	now     *renewal           // under way, or nil
}

// renewal is one attempt to renew a login, for all that wait for it.
type renewal struct {
	done chan struct{}
	err  error // set before done is closed
}

// NewTokens returns the tokens of a target. It reads nothing yet.
func NewTokens(o Options) *Tokens {
	t := &Tokens{o: o}
	t.alive, t.stop = context.WithCancel(context.Background())
	return t
}

// closeLimit is how long Close lets a renewal go on that has its answer and cannot store it.
const closeLimit = 10 * time.Second

// Close waits until a renewal that has sent its token is stored, which is bounded, and ends
// one that has not.
func (t *Tokens) Close() {
	t.stop()
	t.work.Wait()
}

// Token returns the token for the next request, or "" if the server has asked for none yet.
// It renews a login that has run out. The error is a [*fault.Record] or ctx's cause.
func (t *Tokens) Token(ctx context.Context) (Secret, error) { return t.token(ctx, "") }

// Refused takes note of an answer 401 or 403 to a request with that token. It returns another
// token with which the request may be sent once more, or the fault with which it fails. again
// means that it was sent once more already. Refused returns neither if the server asks for no
// login that it knows.
func (t *Tokens) Refused(
	ctx context.Context, token Secret, status int, header http.Header, again bool,
) (Secret, error) {
	asked := ParseChallenge(header)
	if err := t.note(ctx, asked, nil); err != nil {
		t.o.Log.WarnContext(ctx, "the server's challenge could not be kept", "err", err)
	}
	_, l, err := t.read()
	if err != nil {
		return "", err
	}
	switch {
	case asked.DPoP && token == "":
		return "", fault.New(fault.Unauthenticated, fault.Server, "",
			"server %s needs DPoP, which holdline does not speak", t.o.Name).WithReason(fault.Rejected)
	case token == "" && l == nil && t.machine() == nil:
		if !asked.Bearer {
			return "", nil
		}
		return "", t.needsLogin("")
	case status == http.StatusForbidden:
		return t.forbidden(ctx, token, l, asked, again)
	case !again:
		other, err := t.token(ctx, token)
		if err == nil && other == "" { // it was logged out
			err = t.needsLogin("")
		}
		return other, err
	}
	return "", t.lose(ctx, token)
}

// forbidden is [Tokens.Refused] for 403: the login may lack a scope.
func (t *Tokens) forbidden(
	ctx context.Context, token Secret, l *Login, asked Challenge, again bool,
) (Secret, error) {
	var lacks []string
	if l != nil && asked.Error == "insufficient_scope" {
		lacks = l.Lacks(asked.Scopes)
	}
	if len(lacks) == 0 {
		return "", fault.New(fault.Unauthenticated, fault.Server, "",
			"%s does not allow that with this login (403). Another login would not help", t.o.Name).
			WithReason(fault.Rejected)
	}
	if err := t.note(ctx, asked, lacks); err != nil {
		t.o.Log.WarnContext(ctx, "the scopes that a call needs could not be kept", "err", err)
	}
	if t.machine() != nil {
		if !again {
			return t.token(ctx, token)
		}
		return "", fault.New(fault.Unauthenticated, fault.Server, "",
			"server %s needs the scope %s for that, which its authorization server does not grant",
			t.o.Name, joinWords(lacks)).WithReason(fault.InsufficientScope)
	}
	return "", fault.New(fault.Unauthenticated, fault.Server, "",
		"server %s needs the scope %s for that; the person at this machine runs: holdline servers login %s",
		t.o.Name, joinWords(lacks), t.o.Name).WithReason(fault.InsufficientScope)
}

// notePause is how long a challenge that is the same as before is not written again.
const notePause = time.Minute

// note puts a challenge into the target, and the scopes that a call was refused for.
func (t *Tokens) note(ctx context.Context, asked Challenge, wanted []string) error {
	var target Target
	same := func() bool {
		return target.Challenge.Equal(asked) && time.Since(target.Seen) < notePause &&
			len(JoinScopes(target.Wanted, wanted)) == len(target.Wanted)
	}
	if t.o.Store.Read(t.o.Target, &target) == nil && same() {
		return nil
	}
	return t.o.Store.Update(ctx, t.o.Target, &target, func() error {
		if same() {
			return errUnchanged
		}
		target.URL, target.Challenge, target.Seen = BareAddress(t.o.URL), asked, time.Now()
		target.Wanted = JoinScopes(target.Wanted, wanted)
		return nil
	})
}

// lose takes note that the server refuses a token that was just renewed or that cannot be,
// unless there is another one by now. It returns the fault.
func (t *Tokens) lose(ctx context.Context, token Secret) error {
	const why = "the server refuses its tokens"
	target, _, err := t.read()
	if err != nil || target.Login == "" {
		return errors.Join(err, t.needsLogin(""))
	}
	var l Login
	err = t.o.Store.Update(ctx, target.Login, &l, func() error {
		if l.Access != token || l.Lost != nil || l.Issuer == "" {
			return errUnchanged
		}
		l.Lost = &Lost{why, time.Now()}
		return nil
	})
	if err != nil {
		t.o.Log.WarnContext(ctx, "the loss of a login could not be kept", "err", err)
	}
	return t.needsLogin(why)
}

// needsLogin returns the fault of a call without a login.
func (t *Tokens) needsLogin(why string) error { return NeedsLogin(t.o.Name, why) }

// NeedsLogin returns the fault of a call to a server that needs a login. why may be "".
func NeedsLogin(name, why string) *fault.Record {
	if why != "" {
		why = " (" + why + ")"
	}
	return fault.New(fault.Unauthenticated, fault.Server, "",
		"server %s needs a login%s; the person at this machine runs: holdline servers login %s", name, why, name).
		WithReason(fault.NotLoggedIn)
}

// token returns the token for a request, which is not rejected, or "" if there is no login.
// A token that is about to run out is renewed in the background: the request goes on with it.
func (t *Tokens) token(ctx context.Context, rejected Secret) (Secret, error) {
	for tries := 0; ; tries++ {
		target, l, err := t.read()
		if err != nil {
			return "", err
		}
		machine := t.machine() != nil
		switch {
		case l == nil && machine && (rejected != "" || target.Challenge.Bearer):
			l = &Login{} // the grant is asked for the first time
		case l == nil:
			return "", nil
		case l.Lost != nil && !machine:
			return "", t.needsLogin(l.Lost.Why + " on " + l.Lost.At.Format(time.DateTime))
		case l.Access != "" && !Covers(l.Audience, t.o.URL):
			return "", t.needsLogin("its login is for " + Clean(l.Audience))
		}
		now := time.Now()
		usable := l.Access != "" && l.Access != rejected
		renewable := l.Refresh != "" || machine
		switch {
		case usable && (!l.due(now) || !renewable || tries > 0):
			return l.Access, nil
		case usable && !l.expired(now):
			if now.After(l.Retry.At) {
				t.renew(target.Login, rejected)
			}
			return l.Access, nil
		case !renewable, tries == 2:
			return "", t.lose(ctx, rejected)
		}
		r := t.renew(target.Login, rejected)
		select {
		case <-r.done:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		if r.err != nil {
			return "", r.err
		}
	}
}

// renew begins a renewal of the login, or returns the one that is under way.
func (t *Tokens) renew(id string, rejected Secret) *renewal {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil {
		return t.now
	}
	r := &renewal{done: make(chan struct{})}
	t.now = r
	finish := sync.OnceFunc(func() {
		t.mu.Lock()
		t.now, t.known = nil, false
		t.mu.Unlock()
		close(r.done)
	})
	t.work.Go(func() {
		defer finish()
		if t.machine() != nil {
			r.err = t.grant(t.alive, rejected)
		} else {
			r.err = t.refresh(t.alive, id, rejected, finish)
		}
	})
	return r
}

// read returns the target and its login as the files are now; the login is nil if there is
// none. A login that could not be stored counts as if it were.
func (t *Tokens) read() (Target, *Login, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unsaved != nil {
		return t.target, t.unsaved, nil
	}
	s := t.o.Store
	stamps := [2]filewatch.Stamp{s.Stamp(t.o.Target, &t.target), s.Stamp(t.target.Login, &t.login)}
	if !t.known || stamps != t.stamps {
		t.known = false
		if err := s.Read(t.o.Target, &t.target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Target{}, nil, t.storeFault(err)
		}
		stamps[1] = filewatch.Stamp{}
		t.login = Login{}
		if t.target.Login != "" {
			stamps[1] = s.Stamp(t.target.Login, &t.login)
			if err := s.Read(t.target.Login, &t.login); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return Target{}, nil, t.storeFault(err)
			}
		}
		t.known, t.stamps = true, stamps
	}
	if t.login.Issuer == "" { // no login is without one
		return t.target, nil, nil
	}
	l := t.login
	return t.target, &l, nil
}

// machine returns the credentials of a client without a person, or nil if a person logs in.
func (t *Tokens) machine() *Credentials {
	var c Credentials
	if t.o.Discover == nil || t.o.Store.Read(t.o.Target, &c) != nil || c.Grant != GrantClient {
		return nil
	}
	return &c
}

// storeFault returns the fault of a store that cannot be read or written.
func (t *Tokens) storeFault(err error) error {
	f := fault.New(fault.Unauthenticated, fault.Host, "",
		"the login of server %s cannot be used: %v. See: holdline doctor", t.o.Name, err)
	if errors.Is(err, ErrNoKey) {
		f = fault.New(fault.Unauthenticated, fault.Host, "",
			"the login of server %s is locked: %v. Nothing is lost. Fix the command, then try again", t.o.Name, err)
	}
	return f.WithReason(fault.NotLoggedIn)
}

// due reports whether the token is about to run out: less than a minute is left, or less than
// a tenth of its life.
func (l *Login) due(now time.Time) bool {
	if l.Expires.IsZero() || now.Before(l.Obtained.Add(-time.Minute)) { // the clock was set back
		return false
	}
	return l.Expires.Sub(now) < min(time.Minute, l.Expires.Sub(l.Obtained)/10)
}

// expired reports whether the token has run out.
func (l *Login) expired(now time.Time) bool { return l.due(now) && !now.Before(l.Expires) }

// Take puts what was granted into the login. Its generation grows, and what was held against
// it is gone. requested are the scopes of the request, which are granted if the answer names
// none; nil stands for those of before.
func (l *Login) Take(g Grant, requested []string) {
	if requested != nil {
		l.Requested, l.Granted = requested, requested
	}
	if g.Scopes != nil {
		l.Granted = g.Scopes
	}
	if g.Person != "" {
		l.Person = g.Person
	}
	if g.Refresh != "" {
		l.Refresh = g.Refresh
	}
	l.Access, l.Obtained, l.Expires, l.Skew = g.Access, g.Obtained, g.Expires, g.Skew
	l.Generation++
	l.Mark, l.Lost, l.Retry = nil, nil, Retry{}
}

// joinWords returns words as a list for people.
func joinWords(words []string) string {
	out := fmt.Sprint(words)
	return out[1 : len(out)-1]
}
