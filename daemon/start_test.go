package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdline/protocol/socket"
)

// TestEpoch: lives are counted, and whatever a broken count was replaced by is
// higher than any before.
func TestEpoch(t *testing.T) {
	now := time.Now().Unix()
	for _, tt := range []struct {
		file string
		want int64 // at least
	}{
		{"1", 2},
		{" 41\n", 42},
		{"", now},
		{"garbage\x00", now},
		{"-7", now},
		{"9223372036854775807", now}, // the next would be negative
		{"99999999999999999999", now},
	} {
		dir, err := os.MkdirTemp("", "hl")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		p := &place{}
		if p.dir, err = socket.OpenDir(filepath.Join(dir, "r", "daemon.sock")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p.file(epochFile), []byte(tt.file), 0o600); err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		err = p.nextEpoch(t.Context(), log)
		first := p.epoch
		if err != nil || first < tt.want || first > tt.want+time.Now().Unix()-now+1 {
			t.Errorf("%q: epoch %d, %v, want %d", tt.file, first, err, tt.want)
		}
		if err := p.nextEpoch(t.Context(), log); err != nil || p.epoch != first+1 {
			t.Errorf("%q: then epoch %d, %v, want %d", tt.file, p.epoch, err, first+1)
		}
		_ = p.dir.Close()
	}
}
