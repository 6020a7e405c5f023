//go:build !race

package hosted_test

// raceEnabled makes tests that count steps modest.
const raceEnabled = false
