package sandbox

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdline/protocol/process"
)

// decide runs a filter as the kernel does, with the instructions that there are in it.
func decide(t *testing.T, p program, number, arch uint32, args [6]uint64) (action uint32) {
	t.Helper()
	data := binary.NativeEndian.AppendUint32(nil, number)
	data = binary.NativeEndian.AppendUint32(data, arch)
	data = binary.NativeEndian.AppendUint64(data, 0) // the instruction pointer
	for _, a := range args {
		data = binary.NativeEndian.AppendUint64(data, a)
	}
	var acc uint32
	for pc := 0; pc < len(p); pc++ {
		in, met := p[pc], false
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.NativeEndian.Uint32(data[in.K:])
			continue
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= in.K
			continue
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			met = acc == in.K
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			met = acc >= in.K
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			met = acc&in.K != 0
		default:
			t.Fatalf("instruction %d: unknown code %#x", pc, in.Code)
		}
		if met {
			pc += int(in.Jt)
		} else {
			pc += int(in.Jf)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

// ofProcesses are all system calls of Linux 6.18 with the number of a process, thread, group or
// user as an argument, or that act on another process by what such a number leads to, and what
// keeps a confined process from changing another one with it. Those with examples are the
// filter's; TestConfinedServer_ReachesNoSocket tries the others that an ordinary user may make.
var ofProcesses = []struct {
	name           string
	number         uint32
	by             string
	itself, others [][6]uint64
}{
	{
		"prlimit64", unix.SYS_PRLIMIT64, "the filter",
		[][6]uint64{
			{0, unix.RLIMIT_CPU, 1 << 40, 0},
			{0, unix.RLIMIT_CPU, 4096},
			{77, unix.RLIMIT_CPU, 0, 4096},
			{0, unix.RLIMIT_RTTIME, 0, 4096},
			{77, unix.RLIMIT_RTTIME, 0, 4096},
		},
		[][6]uint64{
			{77, unix.RLIMIT_CPU, 4096},
			{77, unix.RLIMIT_CPU, 1 << 40},
			{1<<32 | 77, unix.RLIMIT_CPU, 4096},
			{77, unix.RLIMIT_RTTIME, 4096},
			{0, unix.RLIMIT_RTTIME, 4096},
			{0, unix.RLIMIT_RTTIME, 1 << 40},
			{0, 1<<32 | unix.RLIMIT_RTTIME, 4096}, // its own, which says whose it is
		},
	},
	{
		"setrlimit", unix.SYS_SETRLIMIT, "the filter",
		[][6]uint64{{unix.RLIMIT_CPU, 4096}, {unix.RLIMIT_CORE, 4096}},
		[][6]uint64{{unix.RLIMIT_RTTIME, 4096}, {1<<32 | unix.RLIMIT_RTTIME, 4096}},
	},
	{"sched_setaffinity", unix.SYS_SCHED_SETAFFINITY, "the filter", [][6]uint64{{0, 8, 4096}}, [][6]uint64{{77, 8, 4096}}},
	{"sched_setscheduler", unix.SYS_SCHED_SETSCHEDULER, "the filter", [][6]uint64{{0, 3, 4096}}, [][6]uint64{{77, 3, 4096}}},
	{"sched_setparam", unix.SYS_SCHED_SETPARAM, "the filter", [][6]uint64{{0, 4096}}, [][6]uint64{{77, 4096}}},
	{"sched_setattr", unix.SYS_SCHED_SETATTR, "the filter", [][6]uint64{{0, 4096}}, [][6]uint64{{77, 4096}}},
	{
		"setpriority", unix.SYS_SETPRIORITY, "the filter",
		[][6]uint64{{unix.PRIO_PROCESS, 0, 19}},
		[][6]uint64{{unix.PRIO_PROCESS, 77, 19}, {unix.PRIO_PGRP, 0, 19}, {unix.PRIO_PGRP, 77, 19}, {unix.PRIO_USER, 0, 19}, {unix.PRIO_USER, 77, 19}},
	},
	{
		"ioprio_set", unix.SYS_IOPRIO_SET, "the filter",
		[][6]uint64{{1, 0, 0x6000}},
		[][6]uint64{{1, 77, 0x6000}, {2, 0, 0x6000}, {2, 77, 0x6000}, {3, 0, 0x6000}, {3, 77, 0x6000}},
	},
	{
		"fcntl, F_SETLEASE", unix.SYS_FCNTL, "the filter",
		[][6]uint64{{3, unix.F_SETLK}, {3, unix.F_SETFL}},
		[][6]uint64{{3, unix.F_SETLEASE, unix.F_RDLCK}, {3, 1<<32 | unix.F_SETLEASE}},
	},
	{name: "kill", number: unix.SYS_KILL, by: "Landlock's scope of signals"},
	{name: "tkill", number: unix.SYS_TKILL, by: "Landlock's scope of signals"},
	{name: "tgkill", number: unix.SYS_TGKILL, by: "Landlock's scope of signals"},
	{name: "rt_sigqueueinfo", number: unix.SYS_RT_SIGQUEUEINFO, by: "Landlock's scope of signals"},
	{name: "rt_tgsigqueueinfo", number: unix.SYS_RT_TGSIGQUEUEINFO, by: "Landlock's scope of signals"},
	{name: "pidfd_send_signal", number: unix.SYS_PIDFD_SEND_SIGNAL, by: "Landlock's scope of signals"},
	{name: "fcntl, F_SETOWN", number: unix.SYS_FCNTL, by: "Landlock's scope of signals, when one is sent"},
	{name: "ptrace", number: unix.SYS_PTRACE, by: "Landlock: the other process is not below"},
	{name: "process_vm_readv", number: unix.SYS_PROCESS_VM_READV, by: "Landlock: the other process is not below"},
	{name: "process_vm_writev", number: unix.SYS_PROCESS_VM_WRITEV, by: "Landlock: the other process is not below"},
	{name: "process_madvise", number: unix.SYS_PROCESS_MADVISE, by: "Landlock: the other process is not below"},
	{name: "pidfd_getfd", number: unix.SYS_PIDFD_GETFD, by: "Landlock: the other process is not below"},
	{name: "kcmp", number: unix.SYS_KCMP, by: "Landlock: the other process is not below"},
	{name: "get_robust_list", number: unix.SYS_GET_ROBUST_LIST, by: "Landlock: the other process is not below"},
	{name: "move_pages", number: unix.SYS_MOVE_PAGES, by: "Landlock: the other process is not below"},
	{name: "migrate_pages", number: unix.SYS_MIGRATE_PAGES, by: "Landlock: the other process is not below"},
	{name: "perf_event_open", number: unix.SYS_PERF_EVENT_OPEN, by: "Landlock: the other process is not below"},
	{name: "prctl, PR_SCHED_CORE", number: unix.SYS_PRCTL, by: "Landlock: the other process is not below"},
	{name: "process_mrelease", number: unix.SYS_PROCESS_MRELEASE, by: "the kernel: only of a process that is being killed"},
	{name: "setpgid", number: unix.SYS_SETPGID, by: "the kernel: itself and its children alone"},
	{name: "wait4", number: unix.SYS_WAIT4, by: "the kernel: its children alone"},
	{name: "waitid", number: unix.SYS_WAITID, by: "the kernel: its children alone"},
	{name: "capset", number: unix.SYS_CAPSET, by: "the kernel: itself alone"},
	{name: "timer_create", number: unix.SYS_TIMER_CREATE, by: "the kernel: its own threads alone"},
	{name: "setns", number: unix.SYS_SETNS, by: "the kernel: needs a capability in the other's namespace"},
	{name: "pidfd_open", number: unix.SYS_PIDFD_OPEN, by: "it only names the process"},
	{name: "sched_getaffinity", number: unix.SYS_SCHED_GETAFFINITY, by: "it only reads"},
	{name: "sched_getscheduler", number: unix.SYS_SCHED_GETSCHEDULER, by: "it only reads"},
	{name: "sched_getparam", number: unix.SYS_SCHED_GETPARAM, by: "it only reads"},
	{name: "sched_getattr", number: unix.SYS_SCHED_GETATTR, by: "it only reads"},
	{name: "sched_rr_get_interval", number: unix.SYS_SCHED_RR_GET_INTERVAL, by: "it only reads"},
	{name: "getpriority", number: unix.SYS_GETPRIORITY, by: "it only reads"},
	{name: "ioprio_get", number: unix.SYS_IOPRIO_GET, by: "it only reads"},
	{name: "getpgid", number: unix.SYS_GETPGID, by: "it only reads"},
	{name: "getsid", number: unix.SYS_GETSID, by: "it only reads"},
	{name: "capget", number: unix.SYS_CAPGET, by: "it only reads"},
	{name: "clock_gettime", number: unix.SYS_CLOCK_GETTIME, by: "it only reads"},
	{name: "setuid and its kind", number: unix.SYS_SETUID, by: "the kernel: to its own users alone"},
}

// TestSocketFilter checks what the filter says to each call that it is about, and that it lets
// all others through.
func TestSocketFilter(t *testing.T) {
	const allow, refuse, unknown = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES),
		unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	const forbid = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	const net, tcp, none = 1, 2, 4 // kinds for which a call is let through
	kinds := map[string]int{process.SocketsNet: net, process.SocketsTCP: tcp, process.SocketsNone: none}
	flags := uint64(unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK)
	high := uint64(1) << 32 // the kernel does not look at it
	for arch, name := range map[uint32]string{
		unix.AUDIT_ARCH_X86_64: "amd64", unix.AUDIT_ARCH_AARCH64: "arm64",
	} {
		for kind, bit := range kinds {
			p := socketFilter(arch, kind)
			t.Logf("%s, %s: %d instructions", name, kind, len(p))
			check := func(what string, got, want uint32) {
				t.Helper()
				if got != want {
					t.Errorf("%s, %s: %s: got %#x, want %#x", name, kind, what, got, want)
				}
			}
			for _, c := range []struct {
				what   string
				number uint32
				args   [6]uint64
				by     int
			}{
				{"a unix socket", unix.SYS_SOCKET, [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM | flags}, 0},
				{"a unix socket and a high bit", unix.SYS_SOCKET, [6]uint64{high | unix.AF_UNIX, unix.SOCK_STREAM}, 0},
				{"vsock", unix.SYS_SOCKET, [6]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, 0},
				{"packets", unix.SYS_SOCKET, [6]uint64{unix.AF_PACKET, unix.SOCK_RAW}, 0},
				{"netlink", unix.SYS_SOCKET, [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW | flags}, net},
				{"TCP", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM | flags}, net | tcp},
				{"TCP by name", unix.SYS_SOCKET, [6]uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP}, net | tcp},
				{"MPTCP", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, net},
				{"SCTP", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, net},
				{"UDP", unix.SYS_SOCKET, [6]uint64{unix.AF_INET6, unix.SOCK_DGRAM | flags}, net},
				{"raw", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP}, net},
				{"a pair", unix.SYS_SOCKETPAIR, [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM | flags}, net | tcp | none},
				{"a pair of packets", unix.SYS_SOCKETPAIR, [6]uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET}, net | tcp | none},
				{"a pair of datagrams", unix.SYS_SOCKETPAIR, [6]uint64{unix.AF_UNIX, unix.SOCK_DGRAM | flags}, 0},
				{"a pair of raw ones", unix.SYS_SOCKETPAIR, [6]uint64{unix.AF_UNIX, unix.SOCK_RAW}, 0},
				{"another pair", unix.SYS_SOCKETPAIR, [6]uint64{unix.AF_TIPC, unix.SOCK_STREAM}, 0},
				{"listen", unix.SYS_LISTEN, [6]uint64{3, 1}, net | none},
				{"sendto", unix.SYS_SENDTO, [6]uint64{3, 0, 1, unix.MSG_NOSIGNAL}, net | tcp | none},
				{"sendto, fast", unix.SYS_SENDTO, [6]uint64{3, 0, 1, unix.MSG_NOSIGNAL | unix.MSG_FASTOPEN}, net | none},
				{"sendmsg", unix.SYS_SENDMSG, [6]uint64{3, 0, unix.MSG_NOSIGNAL}, net | tcp | none},
				{"sendmsg, fast", unix.SYS_SENDMSG, [6]uint64{3, 0, unix.MSG_FASTOPEN}, net | none},
				{"sendmmsg", unix.SYS_SENDMMSG, [6]uint64{3, 0, unix.MSG_FASTOPEN}, net | tcp | none}, // that is a count
				{"sendmmsg, fast", unix.SYS_SENDMMSG, [6]uint64{3, 0, 1, unix.MSG_FASTOPEN}, net | none},
				{"connect", unix.SYS_CONNECT, [6]uint64{3}, net | tcp | none}, // Landlock's
				{"typing", unix.SYS_IOCTL, [6]uint64{0, unix.TIOCSTI}, 0},
				{"typing and a high bit", unix.SYS_IOCTL, [6]uint64{0, high | unix.TIOCSTI}, 0},
				{"pasting", unix.SYS_IOCTL, [6]uint64{0, tiocLinux}, 0},
				{"another ioctl", unix.SYS_IOCTL, [6]uint64{0, unix.TIOCGWINSZ}, net | tcp | none},
			} {
				want := refuse
				if c.by&bit != 0 {
					want = allow
				}
				check(c.what, decide(t, p, c.number, arch, c.args), want)
			}
			for _, c := range ofProcesses {
				for _, args := range c.itself {
					check(c.name+" of itself", decide(t, p, c.number, arch, args), allow)
				}
				for _, args := range c.others {
					check(c.name+" of another process", decide(t, p, c.number, arch, args), forbid)
				}
			}
			judged := map[uint32]uint32{
				unix.SYS_IO_URING_SETUP: unknown, unix.SYS_SOCKET: refuse, unix.SYS_SOCKETPAIR: refuse,
				unix.SYS_IOPRIO_SET: forbid, // 0 is no kind of a number
			}
			if kind == process.SocketsTCP {
				judged[unix.SYS_LISTEN] = refuse
			}
			for number := range uint32(1024) {
				want, ok := judged[number]
				if !ok {
					want = allow
				}
				check(fmt.Sprintf("call %d", number), decide(t, p, number, arch, [6]uint64{}), want)
			}
			// The same calls by another ABI.
			for _, other := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0, ^arch} {
				check("another processor", decide(t, p, unix.SYS_GETPID, other, [6]uint64{}), unknown)
			}
			if arch == unix.AUDIT_ARCH_X86_64 {
				for _, number := range []uint32{x32, x32 | unix.SYS_SOCKET, x32 | 512, 0xffffffff} {
					check(fmt.Sprintf("call %#x", number), decide(t, p, number, arch, [6]uint64{}), unknown)
				}
			}
		}
	}
}

// TestRefusal checks that a machine which cannot hold a server says so, and what would help.
func TestRefusal(t *testing.T) {
	for _, c := range []struct {
		what           string
		version        int
		filters, ports bool
		want           string // in the text; "" for nil
	}{
		{"no Landlock, as on macOS", 0, false, false, "no Landlock; Linux 6.2 or newer"},
		{"Linux 5.13", 1, true, false, "truncated; Linux 6.2 or newer"},
		{"Linux 5.19", 2, true, true, "truncated; Linux 6.2 or newer"},
		{"Linux 6.2", 3, true, false, ""},
		{"Linux 6.2 with ports", 3, true, true, "no ports; Linux 6.7 or newer"},
		{"Linux 6.7 with ports", 4, true, true, ""},
		{"another processor", 7, false, false, "(seccomp)"},
	} {
		err := refusal(c.version, c.filters, c.ports)
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) && err != nil {
			t.Errorf("%s: got %q, want %q in it", c.what, got, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "; ") {
			t.Errorf("%s: %q does not say what would help", c.what, err)
		}
	}
}
