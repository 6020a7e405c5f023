package command_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/daemon/command"
)

// TestTimeIsOverWhileAProgramStarts_NoneIsLeft has the time of programs end at every moment of their start.
// None may stay, not even as a zombie.
func TestTimeIsOverWhileAProgramStarts_NoneIsLeft(t *testing.T) {
	for i := range 400 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Microsecond)
		if _, err := (&command.Command{Path: "/bin/sleep", Args: []string{"1000"}}).Run(ctx); err == nil {
			t.Error("a program that sleeps has ended in time")
		}
		cancel()
	}
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range tasks {
		pids, err := os.ReadFile(path)
		if err != nil {
			continue // that thread has ended
		}
		for pid := range strings.FieldsSeq(string(pids)) {
			args, _ := os.ReadFile("/proc/" + pid + "/stat")
			if strings.Contains(string(args), "(sleep)") {
				t.Errorf("process %s is left: %s", pid, args)
			}
		}
	}
}
