//go:build race

package hosted_test

// raceEnabled reduces the number of steps of random tests.
const raceEnabled = true
