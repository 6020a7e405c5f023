package install

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestAlone checks that an installation waits until another one has ended, but not for
// ever.
func TestAlone(t *testing.T) {
	o := &Options{Home: t.TempDir()}
	release, err := o.lockHome(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := o.lockHome(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second one: %v, want it to wait", err)
	}
	second := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		close(began)
		release, err := o.lockHome(t.Context())
		if err == nil {
			release()
		}
		second <- err
	}()
	<-began
	release()
	select {
	case err := <-second:
		if err != nil {
			t.Errorf("after the first has ended: %v", err)
		}
	case <-time.After(lockWait):
		t.Error("it waits although nobody installs")
	}
}
