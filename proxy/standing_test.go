package proxy

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestResumeRepeatsWhatStands checks that a resume repeats requests with a lasting effect
// that the daemon has accepted. One that was refused, or cancelled before its answer, is
// not repeated.
func TestResumeRepeatsWhatStands(t *testing.T) {
	const (
		initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`
		ready      = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
		info       = `{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"info"}}`
		subscribed = `{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"a"}}`
		accepted   = `{"jsonrpc":"2.0","id":%d,"result":{}}`
		refused    = `{"jsonrpc":"2.0","id":%d,"error":{"code":-32600,"message":"no"}}`
	)
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`
	before := []string{1: initialize, 2: ready, 3: info, 4: subscribed}
	for _, tc := range []struct {
		name    string
		lines   []string       // from number 5 on
		answers []string       // of the daemon, in its order
		want    []int          // numbers of the lines that are repeated
		pending map[int]string // those of them that still need an answer, by id
	}{
		{
			"second initialize refused",
			[]string{`{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"again":true}}`},
			[]string{fmt.Sprintf(refused, 9)},
			[]int{1, 2, 3, 4},
			nil,
		},
		{
			"level refused",
			[]string{`{"jsonrpc":"2.0","id":9,"method":"logging/setLevel","params":{"level":"loud"}}`},
			[]string{fmt.Sprintf(refused, 9)},
			[]int{1, 2, 3, 4},
			nil,
		},
		{
			"second subscribe refused",
			[]string{`{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{"uri":"a"}}`},
			[]string{fmt.Sprintf(refused, 9)},
			[]int{1, 2, 3, 4},
			nil,
		},
		{
			"unsubscribe refused",
			[]string{`{"jsonrpc":"2.0","id":9,"method":"resources/unsubscribe","params":{"uri":"a"}}`},
			[]string{fmt.Sprintf(refused, 9)},
			[]int{1, 2, 3, 4},
			nil,
		},
		{
			"level cancelled",
			[]string{`{"jsonrpc":"2.0","id":9,"method":"logging/setLevel","params":{"level":"debug"}}`, cancel},
			nil,
			[]int{1, 2, 3, 4},
			nil,
		},
		{
			"subscribe cancelled",
			[]string{`{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{"uri":"b"}}`, cancel},
			nil,
			[]int{1, 2, 3, 4},
			nil,
		},
		{
			"level not answered",
			[]string{`{"jsonrpc":"2.0","id":9,"method":"logging/setLevel","params":{"level":"debug"}}`},
			nil,
			[]int{1, 2, 3, 4, 5},
			map[int]string{5: "9"},
		},
		{
			"unsubscribe answered before the subscribe",
			[]string{
				`{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{"uri":"b"}}`,
				`{"jsonrpc":"2.0","id":10,"method":"resources/unsubscribe","params":{"uri":"b"}}`,
			},
			[]string{fmt.Sprintf(accepted, 10), fmt.Sprintf(accepted, 9)},
			[]int{1, 2, 3, 4},
			nil,
		},
		{
			"unsubscribe spelled in another way",
			[]string{`{"jsonrpc":"2.0","id":9,"method":"resources/unsubscribe","params":{"uri":"\u0061"}}`},
			[]string{fmt.Sprintf(accepted, 9)},
			[]int{1, 2, 3},
			nil,
		},
		{
			"level accepted",
			[]string{`{"jsonrpc":"2.0","id":9,"method":"logging/setLevel","params":{"level":"debug"}}`},
			[]string{fmt.Sprintf(accepted, 9)},
			[]int{1, 2, 4, 5},
			nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, nil, func(r *rig) {
				lines := append(slices.Clip(before), tc.lines...)
				d := r.connect()
				r.send(before[1:]...)
				d.want(before[1:]...)
				for id := 1; id <= 3; id++ {
					answer := fmt.Sprintf(accepted, id)
					d.send(answer)
					r.wantOut(answer)
				}
				r.send(tc.lines...)
				d.want(tc.lines...)
				d.send(tc.answers...)
				r.wantOut(tc.answers...)
				r.setDown(errors.New("busy"))
				d.conn.Close()
				time.Sleep(time.Second)
				synctest.Wait()
				r.setDown(nil)

				d = r.connect()
				for _, n := range tc.want {
					_, wanted := tc.pending[n]
					d.want(fmt.Sprintf(`{"holdline":1,"replay":%d,"answered":%v}`, n, !wanted), lines[n])
				}
				for _, id := range tc.pending {
					answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
					d.send(answer)
					r.wantOut(answer)
				}
				r.in.Close()
				d.want(byeClient)
				d.wantEnd()
				r.wantEnd(ExitDone)
			})
		})
	}
}
