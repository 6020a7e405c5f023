package session_test

import (
	"os"
	"testing"

	"holdline/protocol/lockcheck/lockchecktest"
)

// TestMain fails the tests if one of them makes a system call under a lock.
func TestMain(m *testing.M) { os.Exit(lockchecktest.Run(m)) }
