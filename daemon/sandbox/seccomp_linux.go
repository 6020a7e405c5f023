package sandbox

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdline/protocol/process"
)

// Landlock before ABI 9 lets a process connect to every unix socket that its user may, and so
// have the daemon, D-Bus or docker do what it may not. Mounts over the sockets' directories
// would need user namespaces, which many systems refuse, and a list of all sockets. So a filter
// of system calls lets a confined process make no such socket in the first place. It looks at
// numbers alone, which no other thread can change once the kernel has read them.

// architectures are the kernel's numbers of the processors for which there is a filter. Both
// have the low half of an argument first.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// Offsets of struct seccomp_data.
const (
	offNumber = 0
	offArch   = 4
	offArg0   = 16
	argSize   = 8
)

// x32 is the bit of the numbers of system calls of another ABI of amd64.
const x32 = 0x40000000

// tiocLinux is the request TIOCLINUX of ioctl, which pastes on a console.
const tiocLinux = 0x541c

// typeMask are the bits of the second argument of socket that are its type.
const typeMask = 0xf

// filters reports whether the kernel can filter system calls of this processor.
func filters() bool {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0,
		uintptr(unsafe.Pointer(&action))) //nolint:gosec // as package unix does
	return errno == 0 && architectures[runtime.GOARCH] != 0
}

// filterSockets lets the calling thread, and what it starts, make no sockets but those of the
// kind. See [process.Confine].
func filterSockets(kind string) error {
	if kind == process.SocketsAny {
		return nil
	}
	arch, ok := architectures[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("seccomp: %w", unix.EOPNOTSUPP)
	}
	f := socketFilter(arch, kind)
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
		uintptr(unsafe.Pointer(&prog)), 0, 0) //nolint:gosec // as package unix does
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}

// program is a filter that grows. The accumulator of the machine has the value loaded last.
type program []unix.SockFilter

// load loads a word of the data.
func (p *program) load(offset uint32) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

// ret ends the filter with an action.
func (p *program) ret(action uint32) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action})
}

// when runs then if the test of the accumulator against k is met.
func (p *program) when(test uint16, k uint32, then func()) { p.branch(test, k, true, then) }

// unless runs then if the test is not met.
func (p *program) unless(test uint16, k uint32, then func()) { p.branch(test, k, false, then) }

// branch appends a jump over what then appends.
func (p *program) branch(test uint16, k uint32, want bool, then func()) {
	at := len(*p)
	*p = append(*p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | test, K: k})
	then()
	skip := uint8(len(*p) - at - 1)
	if want {
		(*p)[at].Jf = skip
	} else {
		(*p)[at].Jt = skip
	}
}

// oneOf refuses the call unless the accumulator has one of the values.
func (p *program) oneOf(refuse uint32, values ...uint32) {
	for i, v := range values {
		skip := uint8(len(values) - i)
		*p = append(*p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ, K: v, Jt: skip})
	}
	p.ret(refuse)
}

// socketFilter returns the filter for a kind of sockets.
func socketFilter(arch uint32, kind string) program {
	refuse := uint32(unix.SECCOMP_RET_ERRNO | unix.EACCES)
	unknown := uint32(unix.SECCOMP_RET_ERRNO | unix.ENOSYS)
	arg := func(n uint32) uint32 { return offArg0 + n*argSize }
	var p program
	call := func(number uint32, then func()) {
		p.load(offNumber)
		p.when(unix.BPF_JEQ, number, then)
	}
	// Calls of another ABI have other numbers.
	p.load(offArch)
	p.unless(unix.BPF_JEQ, arch, func() { p.ret(unknown) })
	if arch == unix.AUDIT_ARCH_X86_64 {
		p.load(offNumber)
		p.when(unix.BPF_JGE, x32, func() { p.ret(unknown) })
	}
	// What is asked for by a ring passes no filter.
	call(unix.SYS_IO_URING_SETUP, func() { p.ret(unknown) })
	call(unix.SYS_SOCKET, func() {
		switch kind {
		case process.SocketsNet:
			p.load(arg(0))
			p.oneOf(refuse, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK)
		case process.SocketsTCP: // MPTCP is a protocol that Landlock does not limit
			p.load(arg(0))
			p.oneOf(refuse, unix.AF_INET, unix.AF_INET6)
			p.load(arg(1))
			p.and(typeMask)
			p.oneOf(refuse, unix.SOCK_STREAM)
			p.load(arg(2))
			p.oneOf(refuse, 0, unix.IPPROTO_TCP)
		default:
			p.ret(refuse)
		}
	})
	// A pair is connected, but one of datagrams could send elsewhere, too.
	call(unix.SYS_SOCKETPAIR, func() {
		p.load(arg(0))
		p.oneOf(refuse, unix.AF_UNIX)
		p.load(arg(1))
		p.and(typeMask)
		p.oneOf(refuse, unix.SOCK_STREAM, unix.SOCK_SEQPACKET)
	})
	// It must not type into the terminal of the client that started it, either.
	call(unix.SYS_IOCTL, func() {
		p.load(arg(1))
		for _, request := range []uint32{unix.TIOCSTI, tiocLinux} {
			p.when(unix.BPF_JEQ, request, func() { p.ret(refuse) })
		}
	})
	p.keepToItself(call)
	if kind == process.SocketsTCP {
		// Listening takes a port without bind, and the flag connects without connect: Landlock
		// looks at neither.
		call(unix.SYS_LISTEN, func() { p.ret(refuse) })
		for _, send := range []struct{ number, flags uint32 }{
			{unix.SYS_SENDTO, 3}, {unix.SYS_SENDMSG, 2}, {unix.SYS_SENDMMSG, 3},
		} {
			call(send.number, func() {
				p.load(arg(send.flags))
				p.when(unix.BPF_JSET, unix.MSG_FASTOPEN, func() { p.ret(refuse) })
			})
		}
	}
	p.ret(unix.SECCOMP_RET_ALLOW)
	return p
}

// Values of ioprio_set and fcntl, which package unix lacks.
const (
	ioprioProcess = 1 // IOPRIO_WHO_PROCESS
	setLease      = unix.F_SETLEASE
)

// keepToItself refuses the calls that change another process and that Landlock does not know: its
// limits, of which that of CPU time ends it, its priorities and its processors. What the kernel
// has of a process by its number the caller may change of itself alone, which is the number 0:
// the filter is the same for all processes that the server starts, so that it cannot know the
// numbers of their own. The limit that is its [process.Mark] it keeps: it must be found when its worker is
// killed. A lease on a file would hold up the next process that opens it.
func (p *program) keepToItself(call func(number uint32, then func())) {
	refuse := uint32(unix.SECCOMP_RET_ERRNO | unix.EPERM)
	arg := func(n uint32) uint32 { return offArg0 + n*argSize }
	must := func(offset, value uint32) {
		p.load(offset)
		p.unless(unix.BPF_JEQ, value, func() { p.ret(refuse) })
	}
	call(unix.SYS_PRLIMIT64, func() {
		p.load(arg(0))
		p.unless(unix.BPF_JEQ, 0, func() { // without new limits, both halves of a pointer, it only reads them
			must(arg(2), 0)
			must(arg(2)+argSize/2, 0)
		})
		p.load(arg(1))
		p.when(unix.BPF_JEQ, unix.RLIMIT_RTTIME, func() {
			must(arg(2), 0)
			must(arg(2)+argSize/2, 0)
		})
	})
	call(unix.SYS_SETRLIMIT, func() {
		p.load(arg(0))
		p.when(unix.BPF_JEQ, unix.RLIMIT_RTTIME, func() { p.ret(refuse) })
	})
	for _, number := range []uint32{
		unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR,
	} {
		call(number, func() { must(arg(0), 0) })
	}
	call(unix.SYS_SETPRIORITY, func() {
		must(arg(0), unix.PRIO_PROCESS)
		must(arg(1), 0)
	})
	call(unix.SYS_IOPRIO_SET, func() {
		must(arg(0), ioprioProcess)
		must(arg(1), 0)
	})
	call(unix.SYS_FCNTL, func() {
		p.load(arg(1))
		p.when(unix.BPF_JEQ, setLease, func() { p.ret(refuse) })
	})
}

// and keeps the bits of the accumulator that are in mask.
func (p *program) and(mask uint32) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask})
}
