package control

import (
	"fmt"
	"strings"
	"time"
)

// Words says for people how the login of a server stands, and which command helps; that is "" if
// none is needed. The words are "" for a server that has asked for no login.
func (l *Login) Words(server string) (words, fix string) {
	logIn := "holdline servers login " + server
	switch l.State {
	case "needs_login":
		words, fix = "needs a login", logIn
		if l.Why != "" {
			words += " (" + l.Why + dated(" on ", l.SinceMS, time.DateTime[:16]) + ")"
		}
		return words, fix
	case "locked":
		return "its login " + l.Why, "holdline doctor"
	case "renewal_failing":
		words = "cannot be renewed at the moment (" + l.Why + dated(", since ", l.SinceMS, "15:04")
		if wait := time.Until(time.UnixMilli(l.NextTryMS)); wait > 0 {
			words += ", next try in " + wait.Round(time.Second).String()
		}
		words += "); logged in" + dated(" until ", l.ExpiresMS, "15:04")
	case "logged_in":
		words = "logged in"
		if l.Account != "" {
			words += " as " + l.Account
		}
		words += dated(" until ", l.ExpiresMS, "2006-01-02 15:04")
		if l.Renews {
			words += ", renews itself"
		} else {
			words += ", cannot be renewed (no refresh token)"
		}
	default:
		return "", ""
	}
	if len(l.Wanted) > 0 {
		words, fix = fmt.Sprintf("%s; wants %s", words, strings.Join(l.Wanted, " ")), logIn
	}
	return words, fix
}

// dated returns a time behind a word, or "" if it is not known.
func dated(word string, unixMS int64, layout string) string {
	if unixMS == 0 {
		return ""
	}
	return word + time.UnixMilli(unixMS).Format(layout)
}
