package rollout

// Image is the path of the program that this process runs, even if another
// file has taken its place since, or none.
func Image() (string, error) { return "/proc/self/exe", nil }
