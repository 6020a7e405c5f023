package place

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdline/protocol/socket"
)

// TestGeneration checks that each daemon has a higher number than all before it, even if
// the file with the number cannot be read.
func TestGeneration(t *testing.T) {
	now := time.Now().Unix()
	for _, tt := range []struct {
		file string
		want int64 // the lowest correct number
	}{
		{"1", 2},
		{" 41\n", 42},
		{"", now},
		{"garbage\x00", now},
		{"-7", now},
		{"9223372036854775807", now}, // adding one would overflow
		{"99999999999999999999", now},
	} {
		dir, err := os.MkdirTemp("", "hl")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		p := &Place{}
		if p.dir, err = socket.OpenDir(filepath.Join(dir, "r", "daemon.sock")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p.File(generationFile), []byte(tt.file), 0o600); err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		err = p.nextGeneration(log)
		first := p.generation
		if err != nil || first < tt.want || first > tt.want+time.Now().Unix()-now+1 {
			t.Errorf("%q: generation %d, %v, want %d", tt.file, first, err, tt.want)
		}
		if err := p.nextGeneration(log); err != nil || p.generation != first+1 {
			t.Errorf("%q: then generation %d, %v, want %d", tt.file, p.generation, err, first+1)
		}
		_ = p.dir.Close()
	}
}
