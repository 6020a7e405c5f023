package hosted

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/config/resolve"
	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/policy"
	"holdline/daemon/tool"
	"holdline/daemon/waiting"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// noWatch is a Watcher that ignores the end of workers.
type noWatch struct{ Watcher }

func (noWatch) WorkerEnded(string) {}

// TestOwnExhaustion checks that a start that fails because this machine has no room counts
// neither against the server nor against its calls, says what to free, and succeeds once
// there is room. A failure of the server itself (EACCES) counts.
func TestOwnExhaustion(t *testing.T) {
	for _, errno := range []error{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM, syscall.EACCES,
	} {
		t.Run(errno.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spec := entry.Server{
					Name: "s", Scope: entry.Shared, Lazy: true, MaxConcurrent: 1, MaxRestarts: 5,
					RestartWindow: 5 * time.Minute, CircuitThreshold: 5, CircuitReset: 30 * time.Second,
					Timeout: time.Minute, MaxTimeout: time.Hour, StartTimeout: time.Minute,
				}
				tried := 0
				spec.Process = func(context.Context, *process.Owner) (resolve.Process, error) {
					tried++
					return resolve.Process{}, fmt.Errorf("generation counter: %w",
						&fs.PathError{Op: "write", Path: "/home/u/.local/state/holdline/generation", Err: errno})
				}
				m := New(Options{
					Log: slog.New(slog.DiscardHandler), Watch: noWatch{}, StateDir: t.TempDir(),
					CatalogDir: t.TempDir(), Servers: []entry.Server{spec},
				})
				c := tool.Caller{Session: "s"}
				for range 20 {
					err := dispatch.Try(t.Context(), m.servers["s"], c, "s__t")
					f, ok := errors.AsType[*fault.Record](err)
					if ours := !errors.Is(errno, syscall.EACCES); !ok ||
						ours && f.Fault.Code != fault.ResourceExhausted {
						t.Fatalf("ready = %v", err)
					}
					time.Sleep(10 * time.Second)
				}
				st := m.Status()[0]
				if errors.Is(errno, syscall.EACCES) {
					if !st.Ejected || tried > 10 || st.Failures == 0 {
						t.Errorf("tried %d times, %+v; want it ejected, and its failures counted", tried, st)
					}
				} else if st.Ejected || st.Restarts > 0 || st.Failures > 0 || st.Circuit != string(policy.Closed) ||
					tried < 20 ||
					st.LastFault == nil {
					t.Errorf("tried %d times, %+v; want nothing held against it, and the reason", tried, st)
				}
				m.hub.End()
				if err := waiting.For(context.WithoutCancel(t.Context()), &m.hub.WG); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
