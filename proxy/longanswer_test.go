package proxy

import "testing"

// TestLongAnswerWithoutFile checks that an answer whose file cannot be opened counts as not
// received: the proxy resumes, says that it takes no files, and the client gets the answer once.
// An answer that the client does not wait for needs no file.
func TestLongAnswerWithoutFile(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		d := r.connect()
		ask := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
		r.send(ask)
		d.want(ask)
		d.send(`{"holdline":1,"long":{"head":"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":",`+
			`"span":{"file":"none","offset":0,"size":9},"tail":"}"}}`,
			`{"holdline":1,"long":{"head":"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":",`+
				`"span":{"file":"none","offset":0,"size":9},"tail":"}"}}`)
		d, g := r.accept()
		if g.Files || len(g.Pending) != 1 || g.Pending[0] != 1 {
			t.Errorf("the greeting of the resume: %+v", g)
		}
		d.send(welcomeLine)
		d.next() // the replay
		d.want(ask)
		d.send(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.wantOut(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}
