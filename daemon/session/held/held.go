// Package held records which lists a client holds and whether they are still true, so
// that each change is announced once.
package held

import (
	"bytes"
	"crypto/sha256"

	"holdline/daemon/tool"
	"holdline/protocol/mcp"
)

// Lists are the lists that one client holds. They have no lock of their own.
type Lists struct {
	current map[string]bool // lists that are true, by the notification of their change
	tools   []byte          // digest of the list of tools, if hosted servers cannot change it; nil if they can
}

// Note records which lists the client will hold, by the methods that ask for them. Call it before
// building a list and again after that: a change in between is then announced, and so is the next
// one. The caller must hold the session's lock.
func (l *Lists) Note(methods ...string) {
	if l.current == nil {
		l.current = map[string]bool{}
	}
	for _, method := range methods {
		l.current[changeOf(method)] = true
	}
}

// TakeChange reports whether the session must announce the change with that notification, and
// records that it does, so that the next call returns false. It returns true if the client has
// asked for the list since the last announcement. The caller must hold the session's lock.
func (l *Lists) TakeChange(notification string) bool {
	held := l.current[notification]
	delete(l.current, notification)
	return held
}

// NoteTools records tools as the list of tools that the client holds, if unchangeable is true: if
// hosted servers do not change the list with what they offer. Else it only forgets the earlier
// list. The caller must hold the session's lock.
func (l *Lists) NoteTools(tools []tool.Listing, unchangeable bool) {
	l.tools = nil
	if unchangeable {
		l.tools = digest(tools)
	}
}

// HasTools reports whether tools is the list that the latest [Lists.NoteTools] has recorded. It
// is false if that recorded none. The caller must hold the session's lock.
func (l *Lists) HasTools(tools []tool.Listing) bool { return bytes.Equal(l.tools, digest(tools)) }

// changeOf returns the notification that announces a change of the list that method asks for.
func changeOf(method string) string {
	switch method {
	case mcp.ToolsList:
		return mcp.ToolsChanged
	case mcp.PromptsList:
		return mcp.PromptsChanged
	}
	return mcp.ResourcesChanged
}

// digest returns a hash of a list of tools, which depends on their order.
func digest(tools []tool.Listing) []byte {
	h := sha256.New()
	for _, t := range tools {
		_, _ = h.Write(t.Raw) // a hash takes every write
		_, _ = h.Write([]byte("\n"))
	}
	return h.Sum(nil)
}
