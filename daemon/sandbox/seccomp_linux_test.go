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

// TestSocketFilter checks what the filter says to each call that it is about, and that it lets
// all others through.
func TestSocketFilter(t *testing.T) {
	const allow, refuse, unknown = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES),
		unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
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
			judged := map[uint32]uint32{
				unix.SYS_IO_URING_SETUP: unknown, unix.SYS_SOCKET: refuse, unix.SYS_SOCKETPAIR: refuse,
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
