package upstream

import (
	"testing"
	"time"
)

// TestSeekPause_GrowsUpToABound checks the pauses between attempts to reach a server that is down.
func TestSeekPause_GrowsUpToABound(t *testing.T) {
	before := time.Duration(0)
	for tries := range 100 {
		is := SeekPause(tries)
		if tries == 0 && is != firstSeek || is < before || is > lastSeek || tries > 6 && is != lastSeek {
			t.Errorf("after %d attempts: %v, before %v", tries, is, before)
		}
		before = is
	}
}
