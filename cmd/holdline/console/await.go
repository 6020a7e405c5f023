package console

import "context"

// Await returns what f returns, or the cause of ctx once that is done. Then the goroutine of f goes
// on: a read of stdin may never end, and cannot be ended.
func Await[T any](ctx context.Context, f func() (T, error)) (value T, err error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}
