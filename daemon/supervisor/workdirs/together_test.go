package workdirs

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestTogether_OneThatDoesNotEndHoldsUpNoOther ends more workers than are ended at the same time, one of which does not
// end: the others do not wait for it, no more than the bound are ended at once, and its error is there.
func TestTogether_OneThatDoesNotEndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		now := make(chan struct{}, endsAtOnce+1) // what is ended at the moment
		errs := together(slices.Values(make([]int, 2*endsAtOnce)), func(int) error {
			now <- struct{}{}
			defer func() { <-now }()
			if len(now) > endsAtOnce {
				t.Errorf("%d are ended at once", len(now))
			}
			time.Sleep(time.Second)
			return nil
		})
		if took := time.Since(begun); took != 2*time.Second || len(errs) > 0 {
			t.Errorf("all are ended after %v, with %v", took, errs)
		}
		stuck := errors.New("does not die")
		begun = time.Now()
		errs = together(slices.Values([]error{nil, stuck, nil, stuck}), func(err error) error {
			if err != nil {
				time.Sleep(5 * time.Second)
			}
			return err
		})
		if took := time.Since(begun); took != 5*time.Second || len(errs) != 2 {
			t.Errorf("two that do not die take %v, and the errors are %v", took, errs)
		}
	})
}
