package rollout

// Image returns a path of the program that this process runs, even if its file was
// replaced or removed since.
func Image() (string, error) { return "/proc/self/exe", nil }
