package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdline/protocol/fault"
)

const good = `{"content":[],"ttlMs":60000}`

// kitchen answers calls of a cache.
type kitchen struct {
	*testing.T
	c *Cache
}

// do makes a call that the server would answer with result. It returns the answer, and
// whether the server was asked.
func (k *kitchen) do(identity, tool, arguments, result string) (got string, asked bool) {
	k.Helper()
	q := Query{Identity: identity, Server: "s", Tool: tool}
	if arguments != "" {
		q.Arguments = json.RawMessage(arguments)
	}
	raw, source, err := k.c.Do(k.Context(), q, func(context.Context) (json.RawMessage, error) {
		asked = true
		return json.RawMessage(result), nil
	})
	if err != nil || (source == Miss) != asked {
		k.Errorf("Do = %s, %v; asked %v", source, err, asked)
	}
	return string(raw), asked
}

func (k *kitchen) want(identity, tool, arguments string, asked bool) {
	k.Helper()
	got, was := k.do(identity, tool, arguments, good)
	if got != good || was != asked {
		k.Errorf("%s calls %s(%s): answer %s, server asked %v, want %v", identity, tool, arguments, got, was, asked)
	}
}

// TestCacheKeepsWhatMayBeKept checks which results are kept, by the ttlMs that they carry.
func TestCacheKeepsWhatMayBeKept(t *testing.T) {
	for _, x := range []struct {
		result string
		kept   bool
	}{
		{good, true},
		{`{"ttlMs":1}`, true},
		{`{"ttlMs":0.5}`, true},
		{`{"ttlMs":1e3,"isError":false,"resultType":"complete"}`, true},
		{`{"ttlMs":1e300}`, true},
		{`{"ttlMs":0}`, false},
		{`{"ttlMs":-1}`, false},
		{`{"ttlMs":"60000"}`, false},
		{`{"ttlMs":null}`, false},
		{`{"TTLMS":60000}`, false}, // keys are compared with their case
		{`{"content":[]}`, false},
		{`{"_meta":{"ttlMs":60000}}`, false},
		{`{"ttlMs":60000,"isError":true}`, false},
		{`{"ttlMs":60000,"resultType":"input_required"}`, false},
		{`{"ttlMs":60000,"ttlMs":60000}`, false},
		{`[]`, false},
		{`{`, false},
	} {
		synctest.Test(t, func(t *testing.T) { // no time passes here
			k := &kitchen{T: t, c: NewCache()}
			if got, asked := k.do("a", "t", "{}", x.result); !asked || got != x.result {
				t.Errorf("%s: answer %s", x.result, got)
			}
			if _, asked := k.do("a", "t", "{}", x.result); asked == x.kept {
				t.Errorf("%s: kept %v, want %v", x.result, !asked, x.kept)
			}
		})
	}
}

// TestCacheTTLBeginsWithTheAnswer checks that a result's lifetime is counted from its
// answer, not from its call.
func TestCacheTTLBeginsWithTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kitchen{T: t, c: NewCache()}
		_, _, err := k.c.Do(t.Context(), Query{Server: "s", Tool: "slow"},
			func(context.Context) (json.RawMessage, error) {
				time.Sleep(10 * time.Minute)
				return json.RawMessage(good), nil
			})
		if err != nil {
			t.Fatal(err)
		}
		k.want("", "slow", "", false)
		time.Sleep(time.Minute - time.Nanosecond)
		k.want("", "slow", "", false)
		time.Sleep(time.Nanosecond)
		k.want("", "slow", "", true)
		k.want("", "slow", "", false)

		// The limit is a day, whatever a server says.
		k.do("", "long", "", `{"ttlMs":1e300}`)
		time.Sleep(24*time.Hour - time.Nanosecond)
		if _, asked := k.do("", "long", "", "{}"); asked {
			t.Error("forgotten within a day")
		}
		time.Sleep(time.Nanosecond)
		if _, asked := k.do("", "long", "", "{}"); !asked {
			t.Error("kept for more than a day")
		}
	})
}

// TestCacheComparesArguments checks that arguments are equal if only space and the order of
// members differ.
func TestCacheComparesArguments(t *testing.T) {
	for _, x := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[1,{"c":2,"d":3}]}`, ` { "b" : [ 1 , { "d" : 3 , "c" : 2 } ] , "a" : 1 } `, true},
		{`{"a":1}`, `{"\u0061":1}`, true},
		{`{"a":1}`, `{"a":1.0}`, false}, // the spelling of numbers counts
		{`{"a":10}`, `{"a":1e1}`, false},
		{`{"a":9007199254740992}`, `{"a":9007199254740993}`, false},
		{`{"a":"1"}`, `{"a":1}`, false},
		{`{"a":"\ud800"}`, `{"a":"\ud801"}`, false}, // both decode to U+FFFD
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":[[1],2]}`, `{"a":[1,[2]]}`, false},
		{`{"a":[1,[]]}`, `{"a":[1]}`, false},
		{`{"a":{"b":1},"c":2}`, `{"a":{"b":1,"c":2}}`, false},
		{`{"a":{},"b":{}}`, `{"a":{"b":{}}}`, false},
		{`{"a:1,b":2}`, `{"a":1,"b":2}`, false},
		{`{"a\":1,\"b":2}`, `{"a":1,"b":2}`, false},
		{`{"a":null}`, `{}`, false},
		{``, `{}`, false}, // missing is not the same as empty
		{`{}`, `{ }`, true},
	} {
		k := &kitchen{T: t, c: NewCache()}
		k.do("", "t", x.a, good)
		if _, asked := k.do("", "t", x.b, good); asked == x.same {
			t.Errorf("%s and %s: the same %v, want %v", x.a, x.b, !asked, x.same)
		}
	}
}

// TestCacheLeavesOddArgumentsAlone checks that a result is not kept if its arguments have
// no safe key.
func TestCacheLeavesOddArgumentsAlone(t *testing.T) {
	for _, arguments := range []string{
		`{"a":1,"\u0061":1}`,
		`{"a":{"b":1,"b":1}}`,
		`{"\ud800":1}`,
		`{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
		`{"a":"` + strings.Repeat("x", maxArguments) + `"}`,
		`{`,
		`[1`,
	} {
		k := &kitchen{T: t, c: NewCache()}
		for range 2 {
			if _, asked := k.do("", "t", arguments, good); !asked {
				t.Errorf("%.40s: answered from the cache", arguments)
			}
		}
		if s := k.c.Stats(); s.Misses != 2 || s.Entries != 0 {
			t.Errorf("%.40s: %+v", arguments, s)
		}
	}
}

func TestCacheIsPartitionedByIdentity(t *testing.T) {
	k := &kitchen{T: t, c: NewCache()}
	k.do("a", "private", "{}", good)
	k.want("b", "private", "{}", true)
	k.want("", "private", "{}", true) // a client without a name is a caller of its own
	k.want("a", "private", "{}", false)
	const shared = `{"ttlMs":60000,"cacheScope":"public"}`
	k.do("a", "public", "{}", shared)
	for _, identity := range []string{"b", ""} {
		if got, asked := k.do(identity, "public", "{}", "{}"); asked || got != shared {
			t.Errorf("%s was answered %s", identity, got)
		}
	}
	for _, scope := range []string{`"private"`, `"Public"`, `["public"]`, `"everybody"`} {
		tool := "scope" + scope
		k.do("a", tool, "{}", `{"ttlMs":60000,"cacheScope":`+scope+`}`)
		if _, asked := k.do("b", tool, "{}", "{}"); !asked {
			t.Errorf("scope %s was shared", scope)
		}
	}
	// A result is not used for another tool, server or process.
	k.want("a", "other", "{}", true)
	for _, q := range []Query{
		{Identity: "a", Server: "s2", Tool: "private"},
		{Identity: "a", Server: "s", Tool: "private", Process: "p"},
		{Identity: "a", Server: "s", Tool: "public", Process: "p"},
	} {
		q.Arguments = json.RawMessage("{}")
		_, source, _ := k.c.Do(t.Context(), q,
			func(context.Context) (json.RawMessage, error) { return json.RawMessage("{}"), nil })
		if source != Miss {
			t.Errorf("%+v: another's answer was given", q)
		}
	}
}

// TestCacheLimits checks that the oldest entries are evicted when the cache has too many
// entries or bytes.
func TestCacheLimits(t *testing.T) {
	k := &kitchen{T: t, c: NewCache()}
	arguments := func(i int) string { return fmt.Sprintf(`{"n":%d}`, i) }
	for i := range maxEntries {
		k.want("", "t", arguments(i), true)
	}
	k.want("", "t", arguments(0), false) // used again, so that the second is the oldest now
	k.want("", "t", arguments(maxEntries), true)
	k.want("", "t", arguments(0), false)
	k.want("", "t", arguments(1), true)
	if n := k.c.Entries("s"); n != maxEntries {
		t.Errorf("%d entries", n)
	}

	k.c = NewCache()
	k.c.limit = 3*(overhead+1000) + 10
	big := `{"ttlMs":60000,"x":"` + strings.Repeat("x", 1000-22) + `"}`
	if len(big) != 1000 {
		t.Fatalf("%d bytes", len(big))
	}
	for _, tool := range []string{"a", "b", "c"} {
		k.do("", tool, "", big)
	}
	k.do("", "a", "", big)
	k.do("", "d", "", big) // evicts b, of another tool
	for tool, asked := range map[string]bool{"a": false, "c": false, "d": false} {
		if _, was := k.do("", tool, "", big); was != asked {
			t.Errorf("%s: asked %v", tool, was)
		}
	}
	if s := k.c.Stats(); s.Entries != 3 || s.Bytes != 3*(overhead+1000) {
		t.Errorf("%+v", s)
	}
	if _, asked := k.do("", "b", "", big); !asked {
		t.Error("the one used longest ago was kept")
	}
	k.do("", "huge", "", `{"ttlMs":60000,"x":"`+strings.Repeat("x", 10_000)+`"}`)
	if s := k.c.Stats(); s.Entries != 3 {
		t.Errorf("an answer that is too large drove others out: %+v", s)
	}

	// The names of tools cannot make it grow either.
	k.c = NewCache()
	for i := range maxTools + 10 {
		k.do("", fmt.Sprint("kept", i), "", good)
	}
	for i := range maxTools + 10 {
		k.do("", fmt.Sprint("not", i), "", "{}")
	}
	if len(k.c.tools) > maxTools || len(k.c.entries) > maxTools || k.c.recent.Len() != len(k.c.tools) {
		t.Errorf("%d tools, %d entries, %d in the list", len(k.c.tools), len(k.c.entries), k.c.recent.Len())
	}
}

// TestCacheForget checks that the answers of one server can be dropped, including those
// that are still on their way.
func TestCacheForget(t *testing.T) {
	k := &kitchen{T: t, c: NewCache()}
	k.want("", "t", "", true)
	k.c.Forget("other")
	k.want("", "t", "", false)
	k.c.Forget("s")
	if s := k.c.Stats(); s.Entries != 0 || s.Bytes != 0 || s.Hits != 1 || s.Misses != 1 {
		t.Errorf("%+v", s)
	}
	k.want("", "t", "", true)

	// The answer to a call from before is not kept, whether or not its result could have
	// been shared.
	for _, never := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			k := &kitchen{T: t, c: NewCache()}
			if never {
				k.do("", "t", "", "{}")
			}
			var old sync.WaitGroup
			old.Go(func() {
				_, _, _ = k.c.Do(t.Context(), Query{Server: "s", Tool: "t"},
					func(context.Context) (json.RawMessage, error) {
						time.Sleep(time.Second)
						return json.RawMessage(`{"old":1,"ttlMs":60000}`), nil
					})
			})
			synctest.Wait()
			k.c.Forget("s")
			k.want("", "t", "", true) // nor is another call waited for
			k.c.Forget("s")
			old.Wait()
			k.want("", "t", "", true)
			if len(k.c.flights) != 0 {
				t.Errorf("%d flights left", len(k.c.flights))
			}
		})
	}
}

// crowd makes n equal calls at the same moment. The nth that reaches the server is answered
// by answer(n) after a second. ctxs, if not nil, are the contexts of the calls.
func crowd(t *testing.T, c *Cache, n int, ctxs []context.Context, answer func(n int) (string, error)) (asked int,
	results []string, errs []error,
) {
	t.Helper()
	results, errs = make([]string, n), make([]error, n)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		ctx := t.Context()
		if ctxs != nil {
			ctx = ctxs[i]
		}
		all.Go(func() {
			raw, _, err := c.Do(ctx, Query{Identity: "a", Server: "s", Tool: "t"},
				func(ctx context.Context) (json.RawMessage, error) {
					mu.Lock()
					asked++
					nth := asked
					mu.Unlock()
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					}
					s, err := answer(nth)
					return json.RawMessage(s), err
				})
			results[i], errs[i] = string(raw), err
		})
		synctest.Wait()
	}
	all.Wait()
	if len(c.flights) != 0 {
		t.Errorf("%d flights left", len(c.flights))
	}
	return asked, results, errs
}

// TestCacheFliesOnce checks that of equal concurrent calls one asks the server and the
// others share its answer.
func TestCacheFliesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCache()
		asked, results, errs := crowd(t, c, 10, nil, func(int) (string, error) { return good, nil })
		if asked != 1 {
			t.Errorf("the server was asked %d times", asked)
		}
		for i := range results {
			if results[i] != good || errs[i] != nil {
				t.Errorf("call %d: %s, %v", i, results[i], errs[i])
			}
		}
		if s := c.Stats(); s.Hits != 9 || s.Misses != 1 || s.Entries != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestCacheSharesFailures checks that a failure is shared by equal concurrent calls, except
// for one that concerns the asking caller alone.
func TestCacheSharesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := fault.New(fault.TransportFailure, fault.Server, "x", "boom")
		asked, _, errs := crowd(t, NewCache(), 5, nil, func(int) (string, error) { return "", boom })
		if asked != 1 {
			t.Errorf("the server was asked %d times", asked)
		}
		for i, err := range errs {
			if !errors.Is(err, boom) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		// A fault that says that the caller alone had no room is not shared.
		full := fault.New(fault.ResourceExhausted, fault.Host, "x", "full")
		asked, results, errs := crowd(t, NewCache(), 3, nil, func(n int) (string, error) {
			if n == 1 {
				return "", full
			}
			return good, nil
		})
		if asked != 2 || !errors.Is(errs[0], full) || results[1] != good || results[2] != good {
			t.Errorf("asked %d times: %v, %v", asked, results, errs)
		}
	})
}

// TestCacheSurvivesItsLeader checks that if the call that asks the server is cancelled, one
// of those that wait asks instead.
func TestCacheSurvivesItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctxs := make([]context.Context, 5)
		for i := range ctxs {
			ctxs[i] = t.Context()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		ctxs[0] = ctx
		impatient, cancel := context.WithTimeout(t.Context(), time.Second/4)
		defer cancel()
		ctxs[3] = impatient // waits for another call, and is cancelled first
		asked, results, errs := crowd(t, NewCache(), 5, ctxs, func(int) (string, error) { return good, nil })
		if asked != 2 {
			t.Errorf("the server was asked %d times", asked)
		}
		for i := range results {
			left := i == 0 || i == 3
			if left != errors.Is(errs[i], context.DeadlineExceeded) || !left && results[i] != good {
				t.Errorf("call %d: %s, %v", i, results[i], errs[i])
			}
		}
	})
}

// TestCacheSharesOnlyWhatMayBeKept checks that a result that may not be kept goes to its
// own caller alone, and that afterwards no call waits for another, until a result may be
// kept again.
func TestCacheSharesOnlyWhatMayBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCache()
		number := func(n int) (string, error) { return fmt.Sprintf(`{"n":%d}`, n), nil }
		begin := time.Now()
		asked, results, _ := crowd(t, c, 4, nil, number)
		if asked != 4 || results[0] == results[1] || results[1] == results[2] {
			t.Errorf("asked %d times: %v", asked, results)
		}
		if d := time.Since(begin); d != 2*time.Second {
			t.Errorf("the first four took %v", d)
		}
		begin = time.Now()
		if asked, _, _ = crowd(t, c, 4, nil, number); asked != 4 || time.Since(begin) != time.Second {
			t.Errorf("asked %d times in %v", asked, time.Since(begin))
		}
		if asked, _, _ = crowd(t, c, 4, nil, func(int) (string, error) { return good, nil }); asked != 4 {
			t.Errorf("asked %d times", asked)
		}
		c.Forget("nothing")
		time.Sleep(time.Hour)
		if asked, _, _ = crowd(t, c, 4, nil, func(int) (string, error) { return good, nil }); asked != 1 {
			t.Errorf("asked %d times after a result that may be kept", asked)
		}
		// An error of the tool says nothing about its other results.
		time.Sleep(time.Hour)
		asked, _, _ = crowd(t, c, 4, nil, func(int) (string, error) { return `{"isError":true}`, nil })
		if asked != 4 {
			t.Errorf("asked %d times for errors", asked)
		}
		if asked, _, _ = crowd(t, c, 4, nil, func(int) (string, error) { return good, nil }); asked != 1 {
			t.Errorf("asked %d times after errors", asked)
		}
	})
}

// TestCacheForgetKeepsLaterFlights checks that a call from before Forget does not end the
// sharing of calls from after it.
func TestCacheForgetKeepsLaterFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCache()
		asked := 0
		var all sync.WaitGroup
		call := func(takes time.Duration) {
			all.Go(func() {
				_, _, _ = c.Do(t.Context(), Query{Server: "s", Tool: "t"},
					func(context.Context) (json.RawMessage, error) {
						asked++
						time.Sleep(takes)
						return json.RawMessage(good), nil
					})
			})
			synctest.Wait()
		}
		call(time.Second)
		c.Forget("s")
		call(time.Minute)
		time.Sleep(2 * time.Second) // the first call has returned
		call(time.Minute)
		if all.Wait(); asked != 2 {
			t.Errorf("the server was asked %d times", asked)
		}
	})
}

// TestCachePanic checks that a panic in the call that asks does not leave others waiting.
func TestCachePanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCache()
		var leader sync.WaitGroup
		leader.Go(func() {
			defer func() { _ = recover() }()
			_, _, _ = c.Do(t.Context(), Query{Server: "s", Tool: "t"}, func(context.Context) (json.RawMessage, error) {
				time.Sleep(time.Second)
				panic("boom")
			})
		})
		synctest.Wait()
		k := &kitchen{T: t, c: c}
		k.want("", "t", "", true)
		leader.Wait()
	})
}

// FuzzDigest checks that space does not change a digest, and that different values have
// different digests.
func FuzzDigest(f *testing.F) {
	for _, s := range []string{
		`{}`,
		`{"a":[1,{"b":null}],"c":"\u00e9"}`,
		`[]`,
		`1.50`,
		`{"a":1,"a":2}`,
		`{"z":{"y":{"x":[[],[[]]]}}}`,
		`"\ud800"`,
	} {
		f.Add([]byte(s), []byte(`{"a":1}`))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x, err := digest(a)
		if err != nil {
			return
		}
		var packed bytes.Buffer
		if json.Compact(&packed, a) == nil {
			if y, err := digest(packed.Bytes()); err != nil || x != y {
				t.Errorf("%s has another digest without space: %v", a, err)
			}
		}
		var v, w any
		if json.Unmarshal(a, &v) != nil {
			return
		}
		if y, err := digest(b); err == nil && x == y && json.Unmarshal(b, &w) == nil {
			p, _ := json.Marshal(v)
			q, _ := json.Marshal(w)
			if string(p) != string(q) {
				t.Errorf("%s and %s have one digest", a, b)
			}
		}
	})
}

// TestNamesInAnotherCase_NoAnswerIsShared checks that answers are not kept whose arguments, or which
// themselves, servers and clients may read in two ways: the last of two equal names would count.
func TestNamesInAnotherCase_NoAnswerIsShared(t *testing.T) {
	for _, arguments := range []string{
		`{"id":"x","ID":"y"}`, `{"a":{"b":[{"k":1,"\u212a":2}]}}`, `{"\u017fource":1,"Source":2}`, `{"x":1,"x":2}`,
	} {
		if _, err := digest([]byte(arguments)); err == nil {
			t.Errorf("%s has a key", arguments)
		}
	}
	if _, err := digest([]byte(`{"id":1,"ids":{"ID":2}}`)); err != nil {
		t.Errorf("names at two levels: %v", err)
	}
	for _, result := range []string{
		`{"ttlMs":1000,"IsError":true}`, `{"ttlMs":1000,"TTLMS":0}`, `{"ttlMs":1000,"cacheScope":"private","CacheScope":"public"}`,
		`{"ttlMs":1000,"Re\u017fultType":"input_required"}`,
	} {
		if _, _, whole := hint([]byte(result)); whole {
			t.Errorf("%s is kept", result)
		}
	}
}
