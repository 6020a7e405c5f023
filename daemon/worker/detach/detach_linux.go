package detach

import "fmt"

// pathOf returns a path of the file that a process has as descriptor fd, even if that file is
// replaced. It was opened at path.
func pathOf(fd int, _ string) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
