package process

import (
	"errors"
	"fmt"
)

// Version is the newest version of the frames and of a worker's files, Oldest
// the oldest one that a daemon or a worker still takes: workers outlive the
// program that started them.
//
// 1 was the first. 2 has [Owner.Project] and [Owner.Key]. 3 has [Spec.Confine]:
// an older worker would run the child without it. 4 has binary frames alone, and
// no process/read.
const (
	Version = 4
	Oldest  = 4
)

// ErrVersion is wrapped by errors about a version of the frames or of a
// worker's files that this program does not take.
var ErrVersion = errors.New("version of the workers' protocol")

// oldest and newest are what this program takes. They are written before
// anything else runs.
var oldest, newest = Oldest, Version

// Speak lets a test binary play a program that takes these versions, before
// it starts goroutines. The program itself never calls it.
func Speak(from, to int) { oldest, newest = from, to }

// Newest is the version of the files and frames that this program makes.
func Newest() int { return newest }

// Known are the versions that this program takes, the oldest first.
func Known() []int {
	var all []int
	for v := oldest; v <= newest; v++ {
		all = append(all, v)
	}
	return all
}

// CheckVersion is an error that wraps [ErrVersion] if this program does not
// take version v.
func CheckVersion(v int) error {
	switch {
	case v > newest:
		return fmt.Errorf("%w: %d is of a newer program, this one takes %d to %d", ErrVersion, v, oldest, newest)
	case v < oldest:
		return fmt.Errorf("%w: %d is not taken any more, %d to %d are", ErrVersion, v, oldest, newest)
	}
	return nil
}
