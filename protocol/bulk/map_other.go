//go:build !linux

package bulk

// mapAtOnce is not known here.
const mapAtOnce = 0
