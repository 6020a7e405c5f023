package policy

import (
	"net/netip"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// Programs read a URI in several ways: by RFC 3986, by the URL standard of browsers (WHATWG), or by
// taking it apart themselves. Who writes a URI could choose one that the rules do not match, and that
// the server reads as one that they forbid. So where rules may decide, only URIs are taken that all
// read in the same way.

// CheckURI returns nil if a session may ask a server for a URI that the server has not listed, as far
// as its spelling goes: no rule can match such a URI, or the URI is in normal form. The fault names
// that form. [Rules.Check] decides then.
func (r Rules) CheckURI(who tool.Who, server, uri string) error {
	normal := normalURI(uri)
	if normal == uri && uri != "" || !r.mayDecide(who, server, uri) {
		return nil
	}
	const why = "rules decide by the URI, and programs could read this one in other ways"
	if normal == "" {
		return fault.New(fault.InvalidInput, fault.Host, "resource", "%s, and it has no normal form: %s", why,
			fault.Quote([]byte(uri)))
	}
	return fault.New(fault.InvalidInput, fault.Host, "resource", "%s: ask for %s", why, fault.Quote([]byte(normal)))
}

// mayDecide reports whether a list that a session has to pass may match what a URI can be read as.
func (r Rules) mayDecide(who tool.Who, server, uri string) bool {
	h := r.current().Servers[server].Holdline
	all := []lists{{allow: h.Allow, deny: h.Deny}}
	for l := range r.lists(who) {
		all = append(all, l)
	}
	scheme, _, ok := cutScheme(strip(uri))
	for _, l := range all {
		if l.allow != nil {
			return true
		}
		for _, pattern := range l.deny {
			if !ok || mayMatch(pattern, server, scheme) {
				return true
			}
		}
	}
	return false
}

// mayMatch reports whether a glob may match a URI of that scheme, or the name that sessions see of one.
func mayMatch(pattern, server, scheme string) bool {
	fixed, open := pattern, false
	if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
		fixed, open = pattern[:i], true
	}
	fixed, server = strings.ToLower(fixed), strings.ToLower(server)
	for _, begins := range []string{scheme + ":", scheme + "_", server + "__" + scheme + ":", server + "__" + scheme + "_"} {
		if strings.HasPrefix(fixed, begins) || open && strings.HasPrefix(begins, fixed) {
			return true
		}
	}
	return false
}

// isSpecial reports whether URIs of a scheme have a host and a path, however many slashes they have.
func isSpecial(scheme string) bool {
	_, ok := defaultPorts[scheme]
	return ok
}

// defaultPorts are the ports of the special schemes of WHATWG.
var defaultPorts = map[string]string{"file": "", "http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}

// strip returns a URI without what WHATWG leaves out: tabs and ends of lines, and control
// characters and spaces around it.
func strip(uri string) string {
	uri = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, uri)
	return strings.TrimFunc(uri, func(r rune) bool { return r <= ' ' })
}

// cutScheme returns the scheme of a URI, in lower case, and what follows. One letter is no scheme, but
// the name of a drive.
func cutScheme(uri string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(uri, ":")
	if !ok || len(scheme) < 2 || strings.IndexFunc(scheme, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && (r < '0' || r > '9') && r != '+' && r != '.' && r != '-'
	}) >= 0 || scheme[0] < 'A' {
		return "", "", false
	}
	return strings.ToLower(scheme), rest, true
}

// normalURI returns the URI in normal form that is read as a URI by at least one kind of program, or
// "" if there is none. RFC 3986 and WHATWG read the normal form in the same way.
func normalURI(uri string) string {
	scheme, rest, ok := cutScheme(strip(uri))
	if !ok || strings.ContainsRune(rest, 0) || !utf8.ValidString(uri) {
		return ""
	}
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	rest = strings.ReplaceAll(rest, `\`, "/")
	host, way, hasHost := cutHost(scheme, rest)
	normal := scheme + ":"
	if hasHost {
		if host, ok = normalHost(scheme, host); !ok {
			return ""
		}
		normal += "//" + host
	}
	way, ok = normalPath(scheme, way)
	if isSpecial(scheme) && way == "" {
		way = "/"
	}
	normal += way
	if hasQuery {
		var fits bool
		query, fits = normalText(query, "/?")
		normal, ok = normal+"?"+query, ok && fits
	}
	if hasFragment {
		var fits bool
		fragment, fits = normalText(fragment, "/?")
		normal, ok = normal+"#"+fragment, ok && fits
	}
	if !ok || !hasHost && strings.HasPrefix(way, "//") {
		return ""
	}
	return normal
}

// cutHost splits what follows a scheme, without backslashes, into host and path.
func cutHost(scheme, rest string) (host, way string, ok bool) {
	slashes := len(rest) - len(strings.TrimLeft(rest, "/"))
	switch {
	case scheme == "file":
		if slashes != 2 {
			return "", "/" + rest[slashes:], true
		}
	case isSpecial(scheme):
		rest = "//" + rest[slashes:]
	case slashes < 2:
		return "", rest, false
	}
	host, way, found := strings.Cut(rest[2:], "/")
	if found {
		way = "/" + way
	}
	if scheme == "file" && len(host) == 2 && (host[1] == ':' || host[1] == '|') { // a drive
		host, way = "", "/"+host+way
	}
	return host, way, true
}

// normalHost returns the host of a URI, with its port, in normal form.
func normalHost(scheme, host string) (string, bool) {
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:]
	}
	port := ""
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host, port = host[:i], strings.TrimLeft(host[i+1:], "0")
		if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
			return "", false
		}
		if port != "" && port != defaultPorts[scheme] {
			port = ":" + port
		} else {
			port = ""
		}
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		ip, err := netip.ParseAddr(host[1 : len(host)-1])
		return "[" + ip.String() + "]" + port, err == nil && ip.Is6() && ip.Zone() == ""
	}
	host = strings.TrimSuffix(strings.ToLower(unescape(host)), ".")
	if strings.HasPrefix(host, ".") || strings.Contains(host, "..") {
		return "", false
	}
	for _, r := range host {
		if !isUnreserved(r) && !strings.ContainsRune("!$&'()*+,;=", r) {
			return "", false // such as a name that is not in ASCII
		}
	}
	if isSpecial(scheme) {
		var ok bool
		if host, ok = normalIPv4(host); !ok {
			return "", false
		}
	}
	if scheme == "file" {
		if port != "" {
			return "", false
		}
		if host == "localhost" {
			host = ""
		}
	}
	return host + port, host != "" || scheme == "file" || !isSpecial(scheme) && port == ""
}

// normalIPv4 returns an address with one to four numbers, decimal, octal or hexadecimal, as four
// decimal ones. Other names stay.
func normalIPv4(host string) (string, bool) {
	parts := strings.Split(host, ".")
	number := func(s string) (uint64, bool) {
		base, digits := 10, s
		switch {
		case strings.HasPrefix(s, "0x"):
			if base, digits = 16, s[2:]; digits == "" {
				digits = "0"
			}
		case len(s) > 1 && s[0] == '0':
			base, digits = 8, s[1:]
		}
		n, err := strconv.ParseUint(digits, base, 33)
		return n, err == nil && s != ""
	}
	last := parts[len(parts)-1]
	if _, isNumber := number(last); !isNumber && strings.Trim(last, "0123456789") != "" || last == "" {
		return host, true
	}
	if len(parts) > 4 {
		return "", false
	}
	whole := uint64(0)
	for i, part := range parts {
		n, ok := number(part)
		most := uint64(1)<<8 - 1
		if i == len(parts)-1 {
			most = uint64(1)<<(8*(5-len(parts))) - 1
		}
		if !ok || n > most {
			return "", false
		}
		if i == len(parts)-1 {
			whole |= n
		} else {
			whole |= n << (8 * (3 - i))
		}
	}
	return netip.AddrFrom4([4]byte{byte(whole >> 24), byte(whole >> 16), byte(whole >> 8), byte(whole)}).String(), true
}

// normalPath returns a path in normal form: without dots, and of files without empty names.
func normalPath(scheme, way string) (string, bool) {
	way, ok := normalText(way, "/")
	if !ok {
		return "", false
	}
	var kept []string
	segments := strings.Split(way, "/")
	rooted := segments[0] == "" && len(segments) > 1
	if rooted {
		segments = segments[1:]
	}
	for i, segment := range segments {
		last := i == len(segments)-1
		switch {
		case segment == "." || segment == "..":
			if segment == ".." && len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
			if last {
				kept = append(kept, "")
			}
		case segment == "" && !last && scheme == "file":
		default:
			kept = append(kept, segment)
		}
	}
	way = strings.Join(kept, "/")
	if rooted {
		if drive, after, ok := strings.Cut(way, "%7C"); ok && scheme == "file" && len(drive) == 1 {
			way = drive + ":" + after
		}
		way = "/" + way
	}
	return way, true
}

// normalText returns a part of a URI in which only that is escaped which must be, in upper case.
// more are characters that may stand in it besides those of all parts. It returns false for NUL, and
// for bytes that are no text.
func normalText(text, more string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c, escaped := text[i], false
		if c == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]) {
			n, _ := strconv.ParseUint(text[i+1:i+3], 16, 8) // they are digits
			c, escaped, i = byte(n), true, i+2
		}
		switch {
		case isUnreserved(rune(c)), !escaped && strings.IndexByte("!$&'()*+,;=:@"+more, c) >= 0:
			b.WriteByte(c)
		case c == 0:
			return "", false
		default:
			b.WriteByte('%')
			b.WriteString(strings.ToUpper(strconv.FormatUint(uint64(c)|0x100, 16)[1:]))
		}
	}
	return b.String(), utf8.ValidString(unescape(b.String()))
}

// isUnreserved reports whether a character means the same escaped and as it is (RFC 3986).
func isUnreserved(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._~", r)
}

// isHex reports whether a byte is a hexadecimal digit.
func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

// unescape returns a text without percent escapes. What is no escape stays.
func unescape(text string) string {
	if strings.IndexByte(text, '%') < 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]) {
			n, _ := strconv.ParseUint(text[i+1:i+3], 16, 8) // they are digits
			c, i = byte(n), i+2
		}
		b.WriteByte(c)
	}
	return b.String()
}

// readings returns the URIs that programs may take a URI for, besides itself: its normal form, and
// both without escapes, dots, empty names, fragment and query. It returns nil for a name that is no
// URI.
func readings(name string) (all []string) {
	if !strings.Contains(name, ":") {
		return nil
	}
	add := func(uri string) {
		for _, end := range []string{"", "#", "?#"} {
			short := uri
			if i := strings.IndexAny(uri, end); i >= 0 {
				short = uri[:i]
			} else if end != "" {
				continue
			}
			all = append(all, short)
			if clean, _ := cleanURI(short); clean != "" {
				all = append(all, clean)
			}
		}
	}
	add(name)
	normal := normalURI(name)
	if normal != "" && normal != name {
		add(normal)
	}
	if after, ok := strings.CutPrefix(normal, "file://"); ok && after[0] != '/' { // some ignore the host
		if i := strings.IndexByte(after, '/'); i > 0 {
			add("file://" + after[i:])
		}
	}
	return all
}

// cleanURI returns a URI without percent escapes, backslashes and empty names. If its path contains
// "..", climbs is true, and the URI has no . and .. any more. It returns "" for a name that is no URI.
func cleanURI(name string) (clean string, climbs bool) {
	scheme, rest, ok := strings.Cut(name, ":")
	if !ok {
		return "", false
	}
	rest = strings.ReplaceAll(unescape(rest), `\`, "/")
	root := rest[:len(rest)-len(strings.TrimLeft(rest, "/"))]
	end := ""
	if strings.HasSuffix(rest, "/") && len(rest) > len(root) {
		end = "/" // a directory
	}
	for segment := range strings.SplitSeq(rest, "/") {
		climbs = climbs || segment == ".."
	}
	rest = strings.TrimPrefix(path.Clean("/"+rest), "/")
	if rest == "" {
		end = ""
	}
	return scheme + ":" + root + rest + end, climbs
}
