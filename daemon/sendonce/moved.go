package sendonce

import (
	"net/http"
	"net/url"
	"strings"
)

// MaxMoves bounds how often one message is sent on to where [Moved] says.
const MaxMoves = 3

// wanted returns where an answer says that the same message is to be sent; nil if it does not say so, or names a user.
func wanted(resp *http.Response) *url.URL {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if to, err := resp.Location(); err == nil && to.User == nil {
			return to
		}
	}
	return nil
}

// Moved returns where the server of an answer wants to have the message instead (301, 307, 308): a server that
// answers so has done nothing with it. It returns nil if that is no other place, or one of another origin: the message
// and its headers are for nobody else. Many servers do not know that a gateway in front of them speaks https, and say
// http: the path counts then, and https stays.
func Moved(resp *http.Response) *url.URL {
	from, to := resp.Request.URL, wanted(resp)
	if to == nil {
		return nil
	}
	if from.Scheme == "https" && to.Scheme == "http" && strings.EqualFold(to.Hostname(), from.Hostname()) &&
		(to.Port() == "" || to.Port() == "80" || to.Port() == from.Port()) {
		to.Scheme, to.Host = from.Scheme, from.Host
	}
	if Origin(to) != Origin(from) || to.RequestURI() == from.RequestURI() {
		return nil
	}
	to.User, to.Fragment, to.RawFragment = from.User, "", "" // a user and a password in the address belong to the origin
	return to
}

// Secured returns where the server of an answer wants to have the message by https, if it was sent by http to the same
// host, each at its usual port. Else it returns nil.
func Secured(resp *http.Response) *url.URL {
	from, to := resp.Request.URL, wanted(resp)
	if to == nil || from.Scheme != "http" || to.Scheme != "https" ||
		!strings.EqualFold(to.Hostname(), from.Hostname()) || from.Port() != "" && from.Port() != "80" ||
		to.Port() != "" && to.Port() != "443" {
		return nil
	}
	to.Fragment, to.RawFragment = "", ""
	return to
}

// Origin returns scheme, host and port of an address, in lower case and without the port of the
// scheme.
func Origin(u *url.URL) string {
	own := map[string]string{"https": ":443", "http": ":80"}[u.Scheme]
	return u.Scheme + "://" + strings.TrimSuffix(strings.ToLower(u.Host), own)
}
