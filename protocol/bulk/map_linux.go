package bulk

import "golang.org/x/sys/unix"

// mapAtOnce has mmap(2) map all pages of a file, instead of each few when they are first read.
const mapAtOnce = unix.MAP_POPULATE
