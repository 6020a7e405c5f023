//go:build race

package main

// raceEnabled makes tests that count time or processes modest.
const raceEnabled = true
