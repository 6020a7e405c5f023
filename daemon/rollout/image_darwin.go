package rollout

import "os"

// Image is the path of the program that this process runs: there is no other
// way to name it here, so another file may have taken its place.
func Image() (string, error) { return os.Executable() }
