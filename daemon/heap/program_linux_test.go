package heap

import "testing"

// TestProgramGivesBack checks that the pages of the program that only its start has used leave
// the process, and that it runs on without them.
func TestProgramGivesBack(t *testing.T) {
	before := residentProgram()
	releaseProgram()
	after := residentProgram()
	if after == 0 || after >= before {
		t.Errorf("%d KiB of the program are in memory, and %d KiB after they were given back", before>>10, after>>10)
	}
}
