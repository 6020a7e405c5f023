package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"holdline/daemon/supervisor/near"
	"holdline/protocol/fault"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// A verdict says what an attempt to attach to a worker that failed means for the next one.
type verdict int

// The verdicts.
const (
	passes    verdict = iota + 1 // it may succeed a moment later
	permanent                    // it will fail again, however often: the worker is to be ended
	disowned                     // this daemon is not the one in its place any more, and stops
)

// judge returns the verdict on an error of an attempt to attach to a worker. All that a worker answers is
// permanent, but for want of memory: it has understood what it was asked for. A connection that fails
// says nothing. What is wrong with a file of the worker's directory does not change, either, unless the
// machine or this process lacks something for the moment.
func judge(err error) verdict {
	refused, ok := errors.AsType[*workerwire.Error](err)
	_, path := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, errDisowned):
		return disowned
	case ok && refused.Code == workerwire.CodeExhausted:
		return passes
	case ok, errors.Is(err, process.ErrVersion):
		return permanent
	case errors.Is(err, errDamaged):
		return permanent
	case mayPass(err):
		return passes
	case path, errors.Is(err, ownfile.ErrRefused):
		return permanent
	}
	return passes
}

// errDamaged is wrapped by errors about a file that says what no program has written there.
var errDamaged = errors.New("the file is damaged")

// readSpecSoon is [readSpec], and reads again while the error may pass. One of the disk counts for damage
// after a while; want of descriptors or memory does not: the worker is not to blame for that.
func (s *Supervisor) readSpecSoon(ctx context.Context, dir string) (process.Spec, error) {
	for begin := time.Now(); ; {
		spec, err := s.readSpec(dir)
		if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.EINTR) {
			return spec, err
		}
		if time.Since(begin) > ownfile.PassingTime {
			return spec, fmt.Errorf("%w: %w", errDamaged, err)
		}
		if perr := near.Pause(ctx); perr != nil {
			return spec, errors.Join(perr, err)
		}
	}
}

// readSpec reads the spec of the worker in dir, or takes it from the register, and checks it. What it returns with an error is fit to
// name the worker.
func (s *Supervisor) readSpec(dir string) (process.Spec, error) {
	spec, err := s.Spec(dir)
	_, unread := errors.AsType[*fs.PathError](err)
	switch {
	case unread, errors.Is(err, ownfile.ErrRefused):
	case err != nil:
		err = fmt.Errorf("%w: %w", errDamaged, err)
	default:
		spec.SetDefaults()
		if err = spec.Check(); err == nil && spec.ID != filepath.Base(dir) {
			err = fmt.Errorf("it is that of worker %s", spec.ID)
		}
		if err == nil || errors.Is(err, process.ErrVersion) && spec.Version > process.Newest() {
			return spec, err
		}
		err = fmt.Errorf("%w: %s: %w", errDamaged, filepath.Join(dir, process.FileSpec), err)
	}
	return process.Spec{
		Version: process.Newest(), ID: filepath.Base(dir), Name: spec.Name, Generation: spec.Generation,
	}, err
}

// mayPass reports whether err says that a resource is used up, or that the machine could not read or
// write for once.
func mayPass(err error) bool {
	return fault.Exhausted("", err) != nil || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EINTR)
}

// raiseEpoch takes a generation above that of a daemon of which a worker knows. It returns [errDisowned]
// if there is another daemon in this one's place, which then is that daemon.
func (s *Supervisor) raiseEpoch(ctx context.Context, refused *workerwire.Error) error {
	if !s.Still() {
		return errDisowned
	}
	if s.o.RaiseEpoch == nil {
		return refused
	}
	n, err := s.o.RaiseEpoch(ctx, refused.Epoch)
	if err != nil {
		return errors.Join(refused, err)
	}
	s.epoch.Store(n)
	return nil
}
