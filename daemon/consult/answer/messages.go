package answer

import (
	"math"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/messages"
	"holdline/protocol/control"
)

// Message is what was said to a consult since it was asked for.
type Message struct {
	ID      string `json:"message_id"`
	Text    string `json:"text"` // its beginning
	From    string `json:"from,omitempty"`
	UnixMS  int64  `json:"at_unix_ms"`
	Receipt string `json:"receipt"`
}

// messageMissed is the receipt of a message that the program of an ended consult never took.
const messageMissed = "missed"

// Messages returns the messages to the consult in dir with their receipts, for people. If the
// consult has ended, no message can be added any more.
func Messages(dir string, ended bool) (rows []Message, err error) {
	if ended {
		_, err = messages.Close(dir, math.MaxInt)
	}
	list, rerr := messages.Read(dir, 0)
	if rerr != nil || len(list) == 0 {
		return nil, rerr
	}
	said, _ := engine.ReadTranscript(dir) // without it nothing was heard
	for _, m := range list {
		row := Message{
			ID: m.ID, Text: question(m.Text), From: m.From, UnixMS: m.UnixMS, Receipt: control.MessageQueued,
		}
		switch {
		case said.Heard[m.ID]:
			row.Receipt = control.MessageDelivered
		case ended:
			row.Receipt = messageMissed
		}
		rows = append(rows, row)
	}
	return rows, err
}
