package sandbox

// Versions of the Landlock ABI from which on something can be taken away.
const (
	// Complete is the version from which on nothing of a file, its name or
	// its place can be changed.
	Complete = 3
)

// Gaps says for people what a process that [Confine] has confined can still
// change under this version of the Landlock ABI; "" if nothing.
func Gaps(version int) string {
	if version > 0 && version < Complete {
		return "this kernel's Landlock (ABI 1 or 2, before Linux 6.2) does not keep a file that exists from being " +
			"truncated"
	}
	return ""
}
