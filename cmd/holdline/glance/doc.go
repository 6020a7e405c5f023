// Package glance sums up what a daemon reports: which agents there are, and what sharing
// the servers saves. Several commands show that, each in its own way. Whether all is well says
// package trouble, to agents too.
package glance
