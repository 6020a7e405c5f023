package runner

import "time"

// SetLinger sets how long output is read on after the program's end. Call it before [Serve].
func SetLinger(d time.Duration) { linger = d }
