package daemon

import (
	"testing"
	"time"

	"holdline/daemon/rollout"
)

// TestSettling: an edited file is read once it has stayed as it is, and once only.
func TestSettling(t *testing.T) {
	old, half, whole, none := rollout.Stamp{Size: 1}, rollout.Stamp{Size: 2}, rollout.Stamp{Size: 3}, rollout.Stamp{}
	begin := time.Now()
	for name, tt := range map[string]struct {
		states []rollout.Stamp // one every half second
		reads  []rollout.Stamp
	}{
		"nothing happens":                       {[]rollout.Stamp{old, old, old, old}, nil},
		"written once":                          {[]rollout.Stamp{old, whole, whole, whole, whole, whole}, []rollout.Stamp{whole}},
		"written in two steps":                  {[]rollout.Stamp{old, half, half, whole, whole, whole, whole, whole, whole}, []rollout.Stamp{whole}},
		"gone for a moment":                     {[]rollout.Stamp{old, none, whole, whole, whole, whole, whole}, []rollout.Stamp{whole}},
		"gone for a moment, and the same again": {[]rollout.Stamp{old, none, old, none, old, old, old}, nil},
		"gone":                                  {[]rollout.Stamp{old, none, none, none, none, none}, []rollout.Stamp{none}},
		"written again and again":               {[]rollout.Stamp{half, whole, half, whole, half, whole, half, whole}, nil},
	} {
		var s settling
		read := old
		var reads []rollout.Stamp
		for i, now := range tt.states {
			if s.ready(now, read, begin.Add(time.Duration(i)*500*time.Millisecond)) {
				read = now
				reads = append(reads, now)
			}
		}
		if len(reads) != len(tt.reads) || len(reads) == 1 && reads[0] != tt.reads[0] {
			t.Errorf("%s: read %v, want %v", name, reads, tt.reads)
		}
	}
}
