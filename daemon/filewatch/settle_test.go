package filewatch

import (
	"testing"
	"time"
)

// TestSettler checks that an edited file is read once, after it has stayed unchanged.
func TestSettler(t *testing.T) {
	old, half, whole, none := Stamp{Size: 1}, Stamp{Size: 2}, Stamp{Size: 3}, Stamp{}
	begin := time.Now()
	for name, tt := range map[string]struct {
		states []Stamp // the file's state every half second
		reads  []Stamp
	}{
		"nothing happens": {[]Stamp{old, old, old, old}, nil},
		"written once":    {[]Stamp{old, whole, whole, whole, whole, whole}, []Stamp{whole}},
		"written in two steps": {
			[]Stamp{old, half, half, whole, whole, whole, whole, whole, whole}, []Stamp{whole},
		},
		"gone for a moment": {
			[]Stamp{old, none, whole, whole, whole, whole, whole}, []Stamp{whole},
		},
		"gone for a moment, and the same again": {[]Stamp{old, none, old, none, old, old, old}, nil},
		"gone":                                  {[]Stamp{old, none, none, none, none, none}, []Stamp{none}},
		"written again and again":               {[]Stamp{half, whole, half, whole, half, whole, half, whole}, nil},
	} {
		s := Settler{After: time.Second}
		read := old
		var reads []Stamp
		for i, now := range tt.states {
			if now == read {
				s.Reset()
				continue
			}
			if s.Settled(now, begin.Add(time.Duration(i)*500*time.Millisecond)) {
				read = now
				reads = append(reads, now)
			}
		}
		if len(reads) != len(tt.reads) || len(reads) == 1 && reads[0] != tt.reads[0] {
			t.Errorf("%s: read %v, want %v", name, reads, tt.reads)
		}
	}
}
