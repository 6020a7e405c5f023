package footprint

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"
)

// heldBytes is what the child of the test holds.
const heldBytes = 32 << 20

// TestMain lets the test binary run as a process that holds memory until its stdin ends.
func TestMain(m *testing.M) {
	if os.Getenv("HOLDLINE_TEST_CHILD") != "" {
		held := bytes.Repeat([]byte{1}, heldBytes)
		os.Stdout.WriteString("held\n")
		os.Stdin.Read(held)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestTrees checks that the memory of a child counts for its parent's tree and for its own, and
// that a second question within a second is answered from the first.
func TestTrees(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HOLDLINE_TEST_CHILD=1")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		cmd.Wait()
	}()
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	var m Meter
	self, child := os.Getpid(), cmd.Process.Pid
	trees := m.Trees(t.Context(), []int{self, child, 0, self})
	for i := 0; trees[child].Own.Total == 0 && i < 20; i++ { // a busy machine may need more than the patience
		trees = m.Trees(t.Context(), []int{self, child})
	}
	all, one := trees[self], trees[child]
	if all.Processes < 1 || one.Processes != 0 || len(trees) != 2 || all.Own.Total == 0 {
		t.Errorf("trees %+v", trees)
	}
	for what, memory := range map[string]Memory{"below the parent": all.Below, "of the child": one.Own} {
		if memory.Private < heldBytes || memory.Total < memory.Private || memory.Total > 20*heldBytes {
			t.Errorf("%s: %+v", what, memory)
		}
	}
	m.at = time.Now().Add(time.Minute) // the measurement stays fresh
	if again := m.Trees(t.Context(), []int{1}); len(again) != 2 {
		t.Errorf("measured again: %+v", again)
	}
}
