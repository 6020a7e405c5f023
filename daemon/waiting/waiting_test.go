package waiting

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

// TestFor checks that a wait lasts until all goroutines have ended, or until its context
// ends.
func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		release := make(chan struct{})
		wg.Go(func() { <-release })
		ctx, cancel := context.WithCancelCause(t.Context())
		late := errors.New("late")
		result := make(chan error, 1)
		go func() { result <- For(ctx, &wg) }()
		synctest.Wait()
		if len(result) > 0 {
			t.Error("it did not wait")
		}
		cancel(late)
		if err := <-result; !errors.Is(err, late) {
			t.Errorf("error %v, want the cause of the context", err)
		}
		close(release)
		if err := For(t.Context(), &wg); err != nil {
			t.Error(err)
		}
	})
}

// TestIsClosed checks that only a closed channel counts as one.
func TestIsClosed(t *testing.T) {
	c := make(chan struct{})
	if IsClosed(nil) || IsClosed(c) {
		t.Error("an open channel counts as closed")
	}
	if close(c); !IsClosed(c) {
		t.Error("a closed channel counts as open")
	}
}
