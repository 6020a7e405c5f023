package worker

// yieldMemory does nothing: macOS has no order in which it kills processes.
func yieldMemory() {}

// pathOf returns path, from which descriptor fd was opened: macOS cannot execute a descriptor.
func pathOf(_ int, path string) string { return path }

// adoptOrphans does nothing: this system has no subreapers.
func adoptOrphans() error { return nil }
