package telemetry

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"holdline/protocol/fault"
)

// Totals counts requests. Each request is either a success, a response error or a
// transport fault.
type Totals struct {
	RequestCount        int64 `json:"request_count"`
	SuccessCount        int64 `json:"success_count"`
	ResponseErrorCount  int64 `json:"response_error_count"`
	TransportFaultCount int64 `json:"transport_fault_count"`
	RetryCount          int64 `json:"retry_count"`
	Percentiles
}

// Percentiles are latencies in milliseconds.
type Percentiles struct {
	P50 float64 `json:"p50_ms"`
	P95 float64 `json:"p95_ms"`
	P99 float64 `json:"p99_ms"`
}

// latencies returns the percentiles for people.
func (p Percentiles) latencies() string {
	return fmt.Sprintf("p50=%vms p95=%vms p99=%vms", p.P50, p.P95, p.P99)
}

// Failures are the counts of [Totals] that concise answers and callers show, by shorter
// names.
type Failures struct {
	ResponseErrors  int64 `json:"response_errors"`
	TransportFaults int64 `json:"transport_faults"`
	Retries         int64 `json:"retries"`
}

// failures returns the failures among the requests.
func (t Totals) failures() Failures {
	return Failures{t.ResponseErrorCount, t.TransportFaultCount, t.RetryCount}
}

// outcomes returns the failures for people.
func (f Failures) outcomes() string {
	return fmt.Sprintf("response_error=%d transport_fault=%d retry=%d", f.ResponseErrors, f.TransportFaults, f.Retries)
}

// counts is what is known of the requests of one operation, session or identity. A lock
// of its owner guards it.
type counts struct {
	total     Totals // without the percentiles
	last      time.Duration
	longest   time.Duration
	sum       time.Duration
	lastError fault.Code // of the last request; "" for a success
	latency   *histogram // nil until the first request
	at        time.Time  // of the last request
}

// countRequest counts one request, which took the time took and was replayed that many times. A
// nil fault is a success. Negative values count as 0: a clock may have been set back.
func (c *counts) countRequest(took time.Duration, replays int, f *fault.Record) {
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
	c.latency.countDuration(took)
}

// merge adds the counts of b, which must have counted at least one request. The later
// of both last requests counts as the last one.
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

// totals returns the counts with the percentiles, which it computes now: that is too
// slow to do for each request.
func (c *counts) totals() Totals {
	t := c.total
	t.Percentiles = Percentiles{ms(c.percentile(.5)), ms(c.percentile(.95)), ms(c.percentile(.99))}
	return t
}

// average returns the mean latency, and 0 without requests.
func (c *counts) average() time.Duration {
	return c.sum / time.Duration(max(c.total.RequestCount, 1))
}

// percentile returns the latency that a share p of the requests, from 0 to 1, has not
// exceeded. The result is up to an eighth too large, but never larger than the longest
// latency.
func (c *counts) percentile(p float64) time.Duration {
	if c.latency == nil {
		return 0
	}
	return min(c.latency.percentile(p), c.longest)
}

// ms returns d in milliseconds, rounded to a microsecond.
func ms(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}

// Buckets of a histogram. The width of a bucket is an eighth of its lower edge. They
// reach from one microsecond to 19 hours; the last bucket also holds all that is
// longer.
const (
	subBits = 3
	top     = 36 // powers of two of a microsecond
	buckets = (top - subBits + 1) << subBits
)

// histogram counts durations in buckets. A count that has reached its maximum stays
// there.
type histogram struct {
	n      uint64
	bucket [buckets]uint32
}

// countDuration counts a duration.
func (h *histogram) countDuration(d time.Duration) {
	i := bucketOf(uint64(d / time.Microsecond))
	if h.bucket[i] == math.MaxUint32 {
		return
	}
	h.bucket[i]++
	h.n++
}

// merge adds the counts of b. A bucket that would overflow keeps its maximum.
func (h *histogram) merge(b *histogram) {
	for i, n := range b.bucket {
		n = min(n, math.MaxUint32-h.bucket[i])
		h.bucket[i] += n
		h.n += uint64(n)
	}
}

// bucketOf returns the bucket of a number of microseconds. Its index has the power of
// two of v in the upper bits, and the three bits that follow the leading one in the
// lower bits. Numbers below 8 have buckets of their own.
func bucketOf(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	e := bits.Len64(v) - 1
	i := (e-subBits+1)<<subBits + int(v>>(e-subBits))&(1<<subBits-1)
	return min(i, buckets-1)
}

// upper returns the largest number of microseconds in bucket i. It is the inverse of
// [bucketOf].
func upper(i int) uint64 {
	if i < 1<<subBits {
		return uint64(i)
	}
	shift := i>>subBits - 1
	return (uint64(i&(1<<subBits-1))+1<<subBits+1)<<shift - 1
}

// percentile returns the upper edge of the bucket that contains the share p of all
// durations, and 0 if there are none.
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
