package login

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
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
	// Discover finds where a client without a person gets its tokens, whose grant is
	// [GrantClient]. The login has no tokens yet. If Discover is nil only persons log in.
	Discover func(context.Context, *Client, string, Challenge, *Credentials) (Login, error)
}

// Tokens gives the requests to one server their token, and renews it when a request needs
// it. Any number of processes may do so for the same login: one of them renews. Make it with
// [NewTokens]; the caller must call [Tokens.Close]. It is safe for concurrent use.
type Tokens struct {
	o     Options
	stop  context.CancelFunc // ends waits for locks
	alive context.Context    //nolint:containedctx // of renewals, which outlive the requests that need them
	work  sync.WaitGroup     // renewals under way

	unfound error     // of a discovery that failed; for the renewal under way alone, as looked
	looked  time.Time // when that was

	mu      sync.Mutex         // held for reads of small files, by requests of this server only
	files   files              // as they were read last; guarded by mu, as all below
	stamps  [3]filewatch.Stamp // of the files when they were read
	known   bool               // they were read
	unsaved *Login             // renewed, and not on disk yet
	now     *renewal           // under way, or nil
}

// files are the records of a target. They are empty if they are not there.
type files struct {
	target Target
	login  Login
	client Credentials
}

// machine reports whether no person logs in.
func (f *files) machine() bool { return f.client.Grant == GrantClient }

// hasLogin reports whether there is a login, which may be lost.
func (f *files) hasLogin() bool { return f.login.Issuer != "" }

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
// It renews a login that has run out, if renew is set; otherwise it returns the token that there
// is. The error is a [*fault.Record] or ctx's cause.
func (t *Tokens) Token(ctx context.Context, renew bool) (Secret, error) {
	if renew {
		return t.token(ctx, "", false)
	}
	f, err := t.read()
	if err != nil || f.login.Lost != nil || !Covers(f.login.Audience, t.o.URL) {
		return "", err
	}
	return f.login.Access, nil
}

// Refused takes note of an answer 401 or 403 to a request with that token. It returns another
// token with which the request may be sent once more, or the fault with which it fails. again
// means that it was sent once more already. Refused returns neither if the server asks for no
// login that it knows.
func (t *Tokens) Refused(
	ctx context.Context, token Secret, status int, header http.Header, again bool,
) (Secret, error) {
	own := http.Header{}
	for _, value := range header.Values("WWW-Authenticate") { // some servers repeat the token
		own.Add("WWW-Authenticate", masked(value, []Secret{token}))
	}
	asked := ParseChallenge(own)
	if asked.Bearer || asked.DPoP {
		if err := t.note(ctx, asked, nil); err != nil {
			t.o.Log.WarnContext(ctx, "the server's challenge could not be kept", "err", err)
		}
	}
	f, err := t.read()
	if err != nil {
		return "", err
	}
	switch {
	case asked.DPoP && token == "":
		return "", fault.New(fault.Unauthenticated, fault.Server, "",
			"server %s needs DPoP, which holdline does not speak", t.o.Name).WithReason(fault.Rejected)
	case token == "" && !f.hasLogin() && !f.machine():
		if !asked.Bearer {
			return "", nil
		}
		return "", t.needsLogin("")
	case status == http.StatusForbidden:
		return t.forbidden(ctx, token, f, asked, again)
	case !again:
		other, err := t.token(ctx, token, true)
		if err == nil && other == "" { // it was logged out
			err = t.needsLogin("")
		}
		return other, err
	}
	return "", t.lose(ctx, token)
}

// Answered takes note that the server has answered a request without a token: it wants no login any
// more if it did before.
func (t *Tokens) Answered(ctx context.Context) {
	t.mu.Lock()
	asked := t.known && !t.files.hasLogin() && (t.files.target.asks() || t.files.target.Login != "")
	t.mu.Unlock()
	if !asked {
		return
	}
	if err := t.o.Store.Unasked(ctx, t.o.Target); err != nil {
		t.o.Log.WarnContext(ctx, "that the server wants no login could not be kept", "err", err)
	}
}

// Unasked takes note that the server of a target wants no login any more. It changes nothing if there
// is a login by now, or nothing is known of the target.
func (s *Store) Unasked(ctx context.Context, targetID string) error {
	var target Target
	return s.Update(ctx, targetID, &target, func() error {
		var l Login
		if err := s.ReadIfThere(target.Login, &l); err != nil || l.Issuer != "" || target.URL == "" {
			return cmp.Or(err, errUnchanged)
		}
		target.Login, target.Seen = "", time.Time{}
		return nil
	})
}

// forbidden is [Tokens.Refused] for 403: the login may lack a scope.
func (t *Tokens) forbidden(
	ctx context.Context, token Secret, f *files, asked Challenge, again bool,
) (Secret, error) {
	var lacks []string
	if f.hasLogin() && asked.Error == "insufficient_scope" {
		lacks = f.login.Lacks(asked.Scopes)
	}
	if len(lacks) == 0 {
		return "", fault.New(fault.Unauthenticated, fault.Server, "",
			"%s does not allow that with this login (403). Another login would not help", t.o.Name).
			WithReason(fault.Rejected)
	}
	if f.machine() && again {
		return "", fault.New(fault.Unauthenticated, fault.Server, "",
			"server %s needs the scope %s for that, which its authorization server does not grant",
			t.o.Name, strings.Join(lacks, " ")).WithReason(fault.InsufficientScope)
	}
	if err := t.note(ctx, asked, lacks); err != nil {
		t.o.Log.WarnContext(ctx, "the scopes that a call needs could not be kept", "err", err)
	}
	if f.machine() {
		return t.token(ctx, token, true)
	}
	return "", fault.New(fault.Unauthenticated, fault.Server, "",
		"server %s needs the scope %s for that; the person at this machine runs: holdline servers login %s",
		t.o.Name, strings.Join(lacks, " "), t.o.Name).WithReason(fault.InsufficientScope)
}

// note puts a challenge into the target, and the scopes that a call was refused for. One that is the
// same as before is not written again within [askPause].
func (t *Tokens) note(ctx context.Context, asked Challenge, wanted []string) error {
	var target Target
	same := func() bool {
		return reflect.DeepEqual(target.Challenge, asked) && time.Since(target.Seen).Abs() < askPause &&
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
	f, err := t.read()
	if err != nil {
		return err
	}
	if f.target.Login == "" {
		return t.needsLogin("")
	}
	var l Login
	newer := false
	err = t.o.Store.Update(ctx, f.target.Login, &l, func() error {
		newer = l.Access != token && l.Lost == nil && l.Issuer != ""
		if newer || l.Lost != nil || l.Issuer == "" {
			return errUnchanged
		}
		l.Lost = &Lost{why, time.Now()}
		return nil
	})
	if err != nil {
		t.o.Log.WarnContext(ctx, "the loss of a login could not be kept", "err", err)
	}
	if newer {
		l.Retry = Retry{Why: "the server refuses a token, and there is another one by now"}
		return t.laterFault(&l)
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
// asked means that the server has just asked for a token.
func (t *Tokens) token(ctx context.Context, rejected Secret, asked bool) (Secret, error) {
	for tries := 0; ; tries++ {
		f, err := t.read()
		if err != nil {
			return "", err
		}
		l, machine := &f.login, f.machine()
		switch {
		case !f.hasLogin() && (!machine || !asked && !f.target.Challenge.Bearer):
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
		case usable && (!l.due(now) || tries > 0):
			return l.Access, nil
		case usable && !l.expired(now):
			if renewable && !l.Retry.waits(now) {
				t.renew(f, rejected)
			}
			return l.Access, nil
		case usable && !renewable:
			return "", t.needsLogin(ranOut + " on " + l.Expires.Format(time.DateTime))
		case !renewable, tries == 2:
			return "", t.lose(ctx, rejected)
		}
		r := t.renew(f, rejected)
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
func (t *Tokens) renew(f *files, rejected Secret) *renewal {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil {
		return t.now
	}
	r := &renewal{done: make(chan struct{})}
	t.now = r
	var once sync.Once
	finish := func(err error) {
		once.Do(func() {
			t.mu.Lock()
			t.now, t.known = nil, false
			t.mu.Unlock()
			r.err = err
			close(r.done)
		})
	}
	t.work.Go(func() {
		if f.machine() {
			finish(t.grant(t.alive, f, rejected))
		} else {
			finish(t.refresh(t.alive, f.target.Login, rejected, func() { finish(nil) }))
		}
	})
	return r
}

// read returns the records as the files are now. A login that could not be stored counts as if
// it were.
func (t *Tokens) read() (*files, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, f := t.o.Store, &t.files
	if t.unsaved != nil { // the files cannot be written, and perhaps not be read
		out := *f
		out.login = *t.unsaved
		return &out, nil
	}
	look := func() [3]filewatch.Stamp { // before the files are read: a later change is seen next time
		return [3]filewatch.Stamp{
			s.Stamp(t.o.Target, &f.target), s.Stamp(t.o.Target, &f.client), s.Stamp(f.target.Login, &f.login),
		}
	}
	stamps := look()
	if !t.known || stamps != t.stamps {
		t.known = false
		err := s.ReadIfThere(t.o.Target, &f.target)
		if err == nil {
			first := stamps[0]
			stamps = look() // the target may name another login
			stamps[0] = first
			err = errors.Join(s.ReadIfThere(f.target.Login, &f.login), s.ReadIfThere(t.o.Target, &f.client))
		}
		if err != nil {
			return nil, t.storeFault(err)
		}
		if t.o.Discover == nil {
			f.client.Grant = ""
		}
		t.known, t.stamps = true, stamps
	}
	out := *f
	return &out, nil
}

// storeFault returns the fault of a store that cannot be read or written. It is no reason to log in.
func (t *Tokens) storeFault(err error) error {
	if errors.Is(err, ErrNoKey) {
		return fault.New(fault.Unauthenticated, fault.Host, "",
			"the login of server %s is locked: %v. Nothing is lost. Fix the command, then try again", t.o.Name, err).
			WithReason(fault.NotLoggedIn)
	}
	if full := fault.Exhausted("", err); full != nil {
		return full
	}
	return fault.New(fault.Unauthenticated, fault.Host, "",
		"the login of server %s cannot be used: %v. See: holdline doctor", t.o.Name, err)
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
