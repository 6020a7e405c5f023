package telemetry

import (
	"math"
	"math/bits"
	"time"

	"holdline/protocol/fault"
)

// counts is what is known of one operation, session or identity. Every request
// is a success, a response error or a transport fault.
type counts struct {
	requests  int64
	successes int64
	errors    int64 // response errors
	transport int64 // transport faults
	retries   int64
	last      time.Duration
	longest   time.Duration
	sum       time.Duration
	lastError fault.Code // of the last request; "" if it was a success
	latency   *histogram // made by the first request
	at        time.Time  // of the last request
}

func (c *counts) add(took time.Duration, replays int, f *fault.Record) {
	took = max(took, 0)
	c.requests++
	c.retries += int64(max(replays, 0))
	switch {
	case f == nil:
		c.successes++
		c.lastError = ""
	case f.IsTransport():
		c.transport++
		c.lastError = f.Fault.Code
	default:
		c.errors++
		c.lastError = f.Fault.Code
	}
	c.last, c.at = took, time.Now()
	c.longest = max(c.longest, took)
	if c.sum < math.MaxInt64-took {
		c.sum += took
	}
	if c.latency == nil {
		c.latency = &histogram{}
	}
	c.latency.add(took)
}

// merge adds what b has counted. The last request is that of the later one.
func (c *counts) merge(b *counts) {
	c.requests += b.requests
	c.successes += b.successes
	c.errors += b.errors
	c.transport += b.transport
	c.retries += b.retries
	c.longest = max(c.longest, b.longest)
	if c.sum < math.MaxInt64-b.sum {
		c.sum += b.sum
	}
	if b.at.After(c.at) {
		c.last, c.lastError, c.at = b.last, b.lastError, b.at
	}
	if c.latency == nil {
		c.latency = &histogram{}
	}
	if b.latency != nil {
		c.latency.merge(b.latency)
	}
}

// average is 0 without requests.
func (c *counts) average() time.Duration {
	if c.requests == 0 {
		return 0
	}
	return c.sum / time.Duration(c.requests)
}

// percentile is the latency that a share p of the requests, between 0 and 1,
// did not exceed, at most an eighth too large.
func (c *counts) percentile(p float64) time.Duration {
	if c.latency == nil {
		return 0
	}
	return min(c.latency.percentile(p), c.longest)
}

// A histogram counts durations in buckets whose width is an eighth of their
// lower edge, from a microsecond to 19 hours; longer ones are in the last.
const (
	subBits = 3
	top     = 36 // powers of two of a microsecond
	buckets = (top - subBits + 1) << subBits
)

type histogram struct {
	n      uint64
	bucket [buckets]uint32
}

func (h *histogram) add(d time.Duration) {
	i := bucketOf(uint64(d / time.Microsecond))
	if h.bucket[i] == math.MaxUint32 {
		return
	}
	h.bucket[i]++
	h.n++
}

func (h *histogram) merge(b *histogram) {
	for i, n := range b.bucket {
		n = min(n, math.MaxUint32-h.bucket[i])
		h.bucket[i] += n
		h.n += uint64(n)
	}
}

func bucketOf(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	e := bits.Len64(v) - 1
	i := (e-subBits+1)<<subBits + int(v>>(e-subBits))&(1<<subBits-1)
	return min(i, buckets-1)
}

// upper is the largest number of microseconds that bucket i holds.
func upper(i int) uint64 {
	if i < 1<<subBits {
		return uint64(i)
	}
	shift := i>>subBits - 1
	return (uint64(i&(1<<subBits-1))+1<<subBits+1)<<shift - 1
}

func (h *histogram) percentile(p float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(math.Ceil(p * float64(h.n)))
	rank = min(max(rank, 1), h.n)
	var seen uint64
	for i, n := range h.bucket {
		if seen += uint64(n); seen >= rank {
			return time.Duration(upper(i)) * time.Microsecond
		}
	}
	return time.Duration(upper(buckets-1)) * time.Microsecond
}
