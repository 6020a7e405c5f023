package bootclock

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// clock is the one that goes on while the machine sleeps, which Go's monotonic
// clock does not (clock_gettime(2)).
const clock = unix.CLOCK_BOOTTIME

// ID returns an id of the present boot. It is "" if that cannot be known.
func ID() string { return id() }

// id reads the id once: no process survives the boot in which it began.
var id = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})
