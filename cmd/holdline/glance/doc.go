// Package glance sums up what a daemon says of itself: which agents there are, whether all is
// well, what to do if it is not, and what sharing the servers saves. Several commands show
// that, each in its own way.
package glance
