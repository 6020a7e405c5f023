package telemetry

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"holdline/protocol/fault"
)

// Totals counts requests. Every request is a success, a response error or a transport
// fault. Percentiles are milliseconds.
type Totals struct {
	RequestCount        int64   `json:"request_count"`
	SuccessCount        int64   `json:"success_count"`
	ResponseErrorCount  int64   `json:"response_error_count"`
	TransportFaultCount int64   `json:"transport_fault_count"`
	RetryCount          int64   `json:"retry_count"`
	P50                 float64 `json:"p50_ms"`
	P95                 float64 `json:"p95_ms"`
	P99                 float64 `json:"p99_ms"`
}

// outcomes returns the counts for people.
func (t Totals) outcomes() string {
	return fmt.Sprintf("response_error=%d transport_fault=%d retry=%d", t.ResponseErrorCount, t.TransportFaultCount,
		t.RetryCount)
}

// percentiles returns the percentiles for people.
func (t Totals) percentiles() string {
	return fmt.Sprintf("p50=%vms p95=%vms p99=%vms", t.P50, t.P95, t.P99)
}

// counts is what is known of one operation, session or identity.
type counts struct {
	total     Totals // without the percentiles
	last      time.Duration
	longest   time.Duration
	sum       time.Duration
	lastError fault.Code // of the last request; "" if it was a success
	latency   *histogram // nil until the first request
	at        time.Time  // of the last request
}

// add counts a request; a nil fault is a success.
func (c *counts) add(took time.Duration, replays int, f *fault.Record) {
	took = max(took, 0)
	c.total.RequestCount++
	c.total.RetryCount += int64(max(replays, 0))
	c.lastError = ""
	switch {
	case f == nil:
		c.total.SuccessCount++
	case f.IsTransport():
		c.total.TransportFaultCount++
		c.lastError = f.Fault.Code
	default:
		c.total.ResponseErrorCount++
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

// merge adds what b, which has counted a request, has counted. The last request is the
// later one of both.
func (c *counts) merge(b *counts) {
	c.total.RequestCount += b.total.RequestCount
	c.total.SuccessCount += b.total.SuccessCount
	c.total.ResponseErrorCount += b.total.ResponseErrorCount
	c.total.TransportFaultCount += b.total.TransportFaultCount
	c.total.RetryCount += b.total.RetryCount
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

// totals returns the counts with the percentiles.
func (c *counts) totals() Totals {
	t := c.total
	t.P50, t.P95, t.P99 = ms(c.percentile(.5)), ms(c.percentile(.95)), ms(c.percentile(.99))
	return t
}

// average returns the mean latency, 0 without requests.
func (c *counts) average() time.Duration {
	return c.sum / time.Duration(max(c.total.RequestCount, 1))
}

// percentile returns the latency that a share p of the requests, between 0 and 1, did
// not exceed. It is at most an eighth too large.
func (c *counts) percentile(p float64) time.Duration {
	if c.latency == nil {
		return 0
	}
	return min(c.latency.percentile(p), c.longest)
}

// ms returns d in milliseconds, to the microsecond.
func ms(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}

// Buckets of a histogram: their width is an eighth of their lower edge, from a
// microsecond to 19 hours; longer durations are in the last one.
const (
	subBits = 3
	top     = 36 // powers of two of a microsecond
	buckets = (top - subBits + 1) << subBits
)

// histogram counts durations. Counts of a bucket stop at their maximum.
type histogram struct {
	n      uint64
	bucket [buckets]uint32
}

// add counts a duration.
func (h *histogram) add(d time.Duration) {
	i := bucketOf(uint64(d / time.Microsecond))
	if h.bucket[i] == math.MaxUint32 {
		return
	}
	h.bucket[i]++
	h.n++
}

// merge adds the counts of b.
func (h *histogram) merge(b *histogram) {
	for i, n := range b.bucket {
		n = min(n, math.MaxUint32-h.bucket[i])
		h.bucket[i] += n
		h.n += uint64(n)
	}
}

// bucketOf returns the bucket of a number of microseconds.
func bucketOf(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	e := bits.Len64(v) - 1
	i := (e-subBits+1)<<subBits + int(v>>(e-subBits))&(1<<subBits-1)
	return min(i, buckets-1)
}

// upper returns the largest number of microseconds that bucket i holds.
func upper(i int) uint64 {
	if i < 1<<subBits {
		return uint64(i)
	}
	shift := i>>subBits - 1
	return (uint64(i&(1<<subBits-1))+1<<subBits+1)<<shift - 1
}

// percentile returns the upper edge of the bucket in which the share p is reached.
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
