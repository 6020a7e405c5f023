package proxy

import "golang.org/x/sys/unix"

// bootClock goes on while the machine sleeps, which Go's monotonic clock does
// not (clock_gettime(2)).
const bootClock = unix.CLOCK_BOOTTIME
