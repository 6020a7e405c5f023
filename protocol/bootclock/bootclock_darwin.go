package bootclock

import "golang.org/x/sys/unix"

// clock is the one that goes on while the machine sleeps, which Go's monotonic
// clock does not (clock_gettime(3)).
const clock = unix.CLOCK_MONOTONIC

// ID returns an id of the present boot. It is "" if that cannot be known.
func ID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
