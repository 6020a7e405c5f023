//go:build !race

package e2e

// raceEnabled makes tests use less time or fewer processes.
const raceEnabled = false

// slowness is the factor by which everything may take longer.
const slowness = 1
