package sight_test

import (
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/hosted/sight"
)

// TestStateOfProject checks that a project is unknown until the first answer, that an
// answer stays valid while it is renewed, and that the first one is reported, and then each that
// differs from what requests were told.
func TestStateOfProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer, looks, news := true, 0, 0
		visible := func(string) bool {
			looks++
			return answer
		}
		table := sight.New(visible, func(_ string, isNews bool) {
			if isNews {
				news++
			}
		})
		expect := func(when string, wantSeen, wantKnown bool, wantLooks, wantNews int) {
			t.Helper()
			seen, known := table.Sees("/p")
			if seen != wantSeen || known != wantKnown {
				t.Errorf("%s: seen %v, known %v", when, seen, known)
			}
			synctest.Wait()
			if looks != wantLooks || news != wantNews {
				t.Errorf("%s: %d looks, %d news, want %d and %d", when, looks, news, wantLooks, wantNews)
			}
		}
		expect("at first", false, false, 1, 1)
		expect("then", true, true, 1, 1)
		answer = false
		time.Sleep(time.Minute)
		expect("after a while it goes by what it knows", true, true, 2, 2)
		expect("then by the new answer", false, true, 2, 2)
		answer = true
		table.Configure(visible)
		expect("with another configuration", false, true, 3, 3)
		table.Keep(map[string]struct{}{"/other": {}})
		expect("forgotten", false, false, 4, 4)
		table.Configure(nil)
		expect("shown to all", true, true, 4, 4)
	})
}

// TestAwaitOnce checks that requests wait only once for a stat that hangs, and that its
// late answer is reported as a change.
func TestAwaitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang, news := make(chan struct{}), false
		table := sight.New(func(string) bool {
			<-hang
			return true
		}, func(_ string, isNews bool) { news = isNews })
		begin := time.Now()
		if sight.Await(t.Context(), "/p", []*sight.Table{table}) || time.Since(begin) != sight.Wait {
			t.Errorf("waited %v, want %v and false", time.Since(begin), sight.Wait)
		}
		begin = time.Now()
		if !sight.Await(t.Context(), "/p", []*sight.Table{table}) || time.Since(begin) != 0 {
			t.Errorf("waited %v the second time", time.Since(begin))
		}
		close(hang)
		synctest.Wait()
		if seen, known := table.Sees("/p"); !seen || !known || !news {
			t.Errorf("seen %v, known %v, news %v after the look", seen, known, news)
		}
	})
}
