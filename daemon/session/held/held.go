// Package held records which lists a client was given, and of which changes it was told, so
// that each change is announced once. The client's proxy keeps the same for the next daemon.
package held

import (
	"slices"
	"strings"

	"holdline/protocol/lockcheck"
	"holdline/protocol/mcp"
)

// methods ask for lists.
var methods = [...]string{mcp.ToolsList, mcp.PromptsList, mcp.ResourcesList, mcp.TemplatesList}

// unknown is the digest of a list of which nothing is known but that the client may hold it.
const unknown = "?"

// maxDigest bounds a digest that a proxy says, in bytes.
const maxDigest = 64

// Names of what a proxy keeps, before the method of the list.
const (
	given = "given "
	told  = "told "
)

// Updates is the name of what a proxy keeps of a server, before the server's name: of which changes of
// its resources the client was told.
const Updates = "updates "

// Told returns what a proxy keeps of the changes of resources, by server.
func Told(kept map[string]string) map[string]string {
	told := map[string]string{}
	for name, what := range kept {
		if server, ok := strings.CutPrefix(name, Updates); ok {
			told[server] = what
		}
	}
	return told
}

// Lists are the lists that one client holds, as digests of [holdline/daemon/tool.List]. It is safe
// for concurrent use.
type Lists struct {
	mu    lockcheck.Mutex // guards all below; the innermost one: an outbox calls under its own
	lists [len(methods)]list
	quiet []string // notifications that were sent, and whose lists the client has not asked for since
}

// list is a list that the client may hold. With neither digest it holds none.
type list struct {
	given string // what the client was given last
	told  string // what the list was when its change was announced, if that was later
}

// MethodsOf returns the methods that ask for the lists of whose change a notification tells.
func MethodsOf(notification string) []string {
	switch notification {
	case mcp.ToolsChanged:
		return methods[0:1]
	case mcp.PromptsChanged:
		return methods[1:2]
	}
	return methods[2:4]
}

// ChangeOf returns the notification that announces a change of the list that method asks for.
func ChangeOf(method string) string {
	switch method {
	case mcp.ToolsList:
		return mcp.ToolsChanged
	case mcp.PromptsList:
		return mcp.PromptsChanged
	}
	return mcp.ResourcesChanged
}

// of returns what is known of the list that method asks for. The caller must hold l.mu.
func (l *Lists) of(method string) *list { return &l.lists[slices.Index(methods[:], method)] }

// Given records that the client gets the list that method asks for. Call it when the answer is
// queued, so that no notification stands at the wrong side of it.
func (l *Lists) Given(method, digest string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.of(method) = list{given: digest}
	change := ChangeOf(method)
	l.quiet = slices.DeleteFunc(l.quiet, func(sent string) bool { return sent == change })
}

// KeepGiven returns what the proxy has to keep of [Lists.Given].
func KeepGiven(method, digest string) map[string]string {
	return map[string]string{given + method: digest, told + method: ""}
}

// Missing returns those of the methods of a notification whose lists the client does not hold.
func (l *Lists) Missing(notification string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pick(notification, func(one *list) bool { return *one == list{} })
}

// Held returns those of the methods of a notification whose lists the client may hold.
func (l *Lists) Held(notification string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pick(notification, func(one *list) bool { return *one != list{} })
}

// pick returns the methods of a notification for whose lists is returns true. The caller must
// hold l.mu.
func (l *Lists) pick(notification string, is func(*list) bool) (found []string) {
	for _, method := range MethodsOf(notification) {
		if is(l.of(method)) {
			found = append(found, method)
		}
	}
	return found
}

// Follow records what lists are, by their methods, from whose changes on a client wants to be
// notified that does not hold them.
func (l *Lists) Follow(now map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for method, digest := range now {
		if one := l.of(method); *one == (list{}) {
			one.told = digest
		}
	}
}

// KeepTold returns what the proxy has to keep of [Lists.Follow] and [Lists.Announce].
func KeepTold(now map[string]string) map[string]string {
	keep := map[string]string{}
	for method, digest := range now {
		keep[told+method] = digest
	}
	return keep
}

// Announce reports whether a notification must be sent, and records that it is: one of its lists,
// which are these now, differs from what the client was given and was told of. If once is true,
// nothing is sent either before the client has asked again for one of the lists. Call it when the
// notification is queued.
func (l *Lists) Announce(notification string, now map[string]string, once bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	differs := false
	for method, digest := range now {
		one := l.of(method)
		differs = differs || *one != list{} && digest != one.given && digest != one.told
	}
	silent := slices.Contains(l.quiet, notification)
	if !differs || silent && once {
		return false
	}
	for method, digest := range now {
		if one := l.of(method); *one != (list{}) {
			one.told = digest
		}
	}
	if !silent {
		l.quiet = append(l.quiet, notification)
	}
	return true
}

// Restore goes on with what the proxy of a client that is back has kept; nil if it keeps nothing.
// fresh says that this daemon did not have the session. Otherwise it knows better what the client
// was given, but not whether what it was told of has arrived.
func (l *Lists) Restore(kept map[string]string, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quiet = nil
	for i, method := range methods {
		one := &l.lists[i]
		was := clip(kept[told+method])
		switch {
		case fresh && kept == nil:
			one.given = unknown
		case fresh:
			*one = list{given: clip(kept[given+method]), told: was}
		case one.given != "" || was != "":
			one.told = was
		}
	}
}

// clip returns a digest that a proxy has said, or unknown if it is none.
func clip(digest string) string {
	if len(digest) > maxDigest {
		return unknown
	}
	return digest
}
