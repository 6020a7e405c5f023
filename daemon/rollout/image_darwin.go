package rollout

import "os"

// Image returns the path of the program that this process runs. The file there may have
// been replaced since: this system has no other name for the program.
func Image() (string, error) { return os.Executable() }
