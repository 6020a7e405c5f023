// Package waiting waits for goroutines for a limited time, and tells what has ended without a wait.
package waiting

import (
	"context"
	"iter"
	"sync"
	"time"
)

// For waits until wg is done. If ctx ends first it returns the cause of that, and one
// goroutine goes on waiting.
func For(ctx context.Context, wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Each calls do for each of all at the same time, waits until they have returned, and returns
// their errors.
func Each[T any](all iter.Seq[T], do func(T) error) (errs []error) {
	var mu sync.Mutex // guards errs
	var wg sync.WaitGroup
	for one := range all {
		wg.Go(func() {
			if err := do(one); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errs
}

// Pause blocks for d, for a caller that must poll. It returns the cause of ctx if that is done
// before.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// IsClosed reports whether a channel on which nothing is sent is closed. A nil one is not.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
