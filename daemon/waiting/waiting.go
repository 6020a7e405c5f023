// Package waiting waits for goroutines for a limited time, and tells what has ended without a wait.
package waiting

import (
	"context"
	"sync"
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

// IsClosed reports whether a channel on which nothing is sent is closed. A nil one is not.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
