package stdio

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"holdline/protocol/socket"
	"holdline/proxy"
)

// TestSortDial checks that a refusal ends the proxy, unless its daemon listened at another
// path than the one that refuses.
func TestSortDial(t *testing.T) {
	for _, tc := range []struct {
		err       error
		elsewhere bool
		want      proxy.Down
	}{
		{socket.ErrNoDaemon, false, proxy.DownAbsent},
		{socket.ErrNoDaemon, true, proxy.DownAbsent},
		{socket.ErrOtherUser, false, proxy.DownRefused},
		{socket.ErrOtherUser, true, proxy.DownBusy},
		{os.ErrPermission, false, proxy.DownRefused},
		{os.ErrPermission, true, proxy.DownBusy},
		{errors.New("backlog"), false, proxy.DownBusy},
	} {
		if got := sortDial(fmt.Errorf("dial: %w", tc.err), tc.elsewhere); got != tc.want {
			t.Errorf("%v, elsewhere %v: %v, want %v", tc.err, tc.elsewhere, got, tc.want)
		}
	}
}
