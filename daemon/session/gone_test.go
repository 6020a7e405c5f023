package session

import (
	"strings"
	"testing"

	"holdline/protocol"
	"holdline/protocol/jsonrpc"
)

// replies notes the answers that a server would get.
type replies struct {
	Hosted
	got []string
}

func (r *replies) Respond(_ string, _ int64, msg jsonrpc.Message) bool {
	r.got = append(r.got, string(msg.ID)+" "+string(msg.Error))
	return true
}

// TestResumeLostResponse checks that a server whose request was answered with a line too
// large to be kept for a resume gets an error instead.
func TestResumeLostResponse(t *testing.T) {
	n, yes, no := int64(7), true, false
	hosted := &replies{}
	s := &session{srv: &Server{o: Options{Hosted: hosted}}, known: map[int64]struct{}{}}
	s.tooLarge(t.Context(), &protocol.Control{Replay: &n, Answered: &yes, Bytes: &no, ID: []byte(`"w:1"`)}, nil)
	if len(hosted.got) != 1 || !strings.HasPrefix(hosted.got[0], `"w:1" {"code":-32603,`) {
		t.Errorf("the server got %q, want an error for w:1", hosted.got)
	}
	s.tooLarge(t.Context(), &protocol.Control{Replay: &n, Answered: &yes, Bytes: &no}, nil)
	if len(hosted.got) != 1 {
		t.Errorf("a request that was answered gave the server %q", hosted.got)
	}
}
