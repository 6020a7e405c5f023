package sandbox

// Versions of the Landlock ABI.
const (
	// Complete is the first version that protects a file entirely: its content, its
	// name and its place.
	Complete = 3
)

// Gaps says for people what a process can still change that [Confine] has confined
// under this version of the Landlock ABI. It returns "" if there is nothing, and for
// version 0, which has no Landlock.
func Gaps(version int) string {
	if version > 0 && version < Complete {
		return "this kernel's Landlock (ABI 1 or 2, before Linux 6.2) does not keep a file that exists from being " +
			"truncated"
	}
	return ""
}
