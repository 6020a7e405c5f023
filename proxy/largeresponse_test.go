package proxy

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestResumeNamesLargeResponse checks that a resume repeats the id of a response that was
// too large to be kept, so that the server that waits for it gets an error. An answered
// request is not repeated.
func TestResumeNamesLargeResponse(t *testing.T) {
	inBubble(t, func(r *rig) { r.o.memory = 1 }, func(r *rig) {
		d := r.connect()
		level := `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`
		response := `{"jsonrpc":"2.0","id":"w:1","result":{"large":true}}`
		r.send(level, response)
		d.want(level, response)
		d.send(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.wantOut(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.setDown(errors.New("busy"))
		d.conn.Close()
		time.Sleep(time.Second)
		synctest.Wait()
		r.setDown(nil)
		d = r.connect()
		d.want(`{"holdline":1,"replay":1,"answered":true,"bytes":false}`,
			`{"holdline":1,"replay":2,"answered":true,"bytes":false,"id":"w:1"}`)
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}
