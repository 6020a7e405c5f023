//go:build !linux

package e2e

// reaches is empty where no server can be confined.
var reaches map[string]func(at string) error

// withoutLandlockMain is for Linux alone.
func withoutLandlockMain() int { return 1 }
