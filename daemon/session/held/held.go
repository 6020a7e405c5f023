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

// Note records which lists the client will hold, by the methods that ask for them. Call
// it before building a list and again after sending it: a change in between is then
// announced, and so is the next one.
func (l *Lists) Note(methods ...string) {
	if l.current == nil {
		l.current = map[string]bool{}
	}
	for _, method := range methods {
		l.current[changeOf(method)] = true
	}
}

// TakeChange reports whether the session must announce a change, and records that it does.
// It must if the client has asked for the list since the last announcement.
func (l *Lists) TakeChange(notification string) bool {
	held := l.current[notification]
	delete(l.current, notification)
	return held
}

// NoteTools records the list of tools that the client gets. An unchangeable list is one
// that hosted servers do not change with what they offer.
func (l *Lists) NoteTools(tools []tool.Listing, unchangeable bool) {
	l.tools = nil
	if unchangeable {
		l.tools = digest(tools)
	}
}

// HasTools reports whether the client is known to hold exactly that list of tools.
func (l *Lists) HasTools(tools []tool.Listing) bool { return bytes.Equal(l.tools, digest(tools)) }

// changeOf returns the notification that announces a change of a list.
func changeOf(method string) string {
	switch method {
	case mcp.ToolsList:
		return mcp.ToolsChanged
	case mcp.PromptsList:
		return mcp.PromptsChanged
	}
	return mcp.ResourcesChanged
}

// digest returns a hash of a list of tools.
func digest(tools []tool.Listing) []byte {
	h := sha256.New()
	for _, t := range tools {
		_, _ = h.Write(t.Raw) // a hash takes every write
		_, _ = h.Write([]byte("\n"))
	}
	return h.Sum(nil)
}
