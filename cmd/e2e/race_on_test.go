//go:build race

package e2e

// raceEnabled makes tests that count time or processes modest.
const raceEnabled = true

// slowness is how many times longer everything may take.
const slowness = 4
