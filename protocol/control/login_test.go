package control

import (
	"testing"
	"time"
)

// TestLoginWords checks what people read of each state of a login, and which command helps.
func TestLoginWords(t *testing.T) {
	at := func(text string) int64 {
		when, err := time.ParseInLocation("2006-01-02 15:04", text, time.Local)
		if err != nil {
			t.Fatal(err)
		}
		return when.UnixMilli()
	}
	for _, x := range []struct {
		login      Login
		words, fix string
	}{
		{Login{State: "none"}, "", ""},
		{
			Login{
				State: "logged_in", Account: "ada@example.com", Renews: true, ExpiresMS: at("2026-11-02 10:14"),
			},
			"logged in as ada@example.com until 2026-11-02 10:14, renews itself", "",
		},
		{
			Login{State: "logged_in", ExpiresMS: at("2026-11-01 12:00")},
			"logged in until 2026-11-01 12:00, cannot be renewed (no refresh token)", "",
		},
		{
			Login{State: "logged_in", Renews: true, Wanted: []string{"files:write", "b"}},
			"logged in, renews itself; wants files:write b", "holdline servers login s",
		},
		{
			Login{State: "needs_login", Why: "the refresh token was refused", SinceMS: at("2026-11-01 08:02")},
			"needs a login (the refresh token was refused on 2026-11-01 08:02)", "holdline servers login s",
		},
		{Login{State: "needs_login"}, "needs a login", "holdline servers login s"},
		{
			Login{
				State: "renewal_failing", Why: "unreachable", SinceMS: at("2026-11-01 09:58"),
				ExpiresMS: at("2026-11-01 10:14"), Renews: true,
			},
			"cannot be renewed at the moment (unreachable, since 09:58); logged in until 10:14", "",
		},
		{Login{State: "locked", Why: "is sealed"}, "its login is sealed", "holdline doctor"},
	} {
		if words, fix := x.login.Words("s"); words != x.words || fix != x.fix {
			t.Errorf("%+v:\n got %q, %q\nwant %q, %q", x.login, words, fix, x.words, x.fix)
		}
	}
}
