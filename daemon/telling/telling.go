// Package telling finds the line that says why a program ended in what it wrote last.
//
// The last line seldom is that one: npm ends with the path of its log, node with its version
// and Rust with a hint at an environment variable. The choice is for people who read a
// message; no decision depends on it.
package telling

import (
	"net/url"
	"slices"
	"strings"

	"holdline/daemon/lazyregexp"
)

// noise are lines that say nothing of the reason, without the prefix that [bare] removes.
var noise = lazyregexp.New(`^(` + strings.Join([]string{
	`[\W\d_]*`,                                                  // brackets, carets, numbers and what underlines code
	`\d{3}`, `code \S+`, `syscall \w+`, `errno \S+`, `path \S+`, // of npm
	`\d{3} +(Note that|tarball|The requested resource|In most cases|it was).*`, `\d{3}  '.*`,
	`A complete log of this run.*`, `npm (http|info|notice|warn|WARN)\b.*`,
	`(warn|notice|WARN)\b.*`, `Log files were not written.*`,
	`(at|throw|raise|return|File) .*`, `Require stack:`, `- /.*`, `Node\.js v[\d.]+`, `(code|requireStack): .*`,
	`Traceback \(most recent.*`, `During handling of .*`, `The above exception .*`, // of Python
	`goroutine \d+ .*`, `exit status \d+`, `\S+\.go:\d+.*`, `note: .*`, // of Go and Rust
	`(hint|help|See|For help|For more information|Usage)\b.*`, `Caused by:.*`,
}, "|") + `)$`)

// reason are lines that begin as messages of errors do.
var reason = lazyregexp.New(`^([\w./:-]+: )?(\[?(fatal|panic|error|Fatal|Error|FATAL|ERROR|Panic)\]?\b` +
	`|[\w.]*(Error|Exception|Failure))\b.*[:!]|^\d{3} [A-Z]|^\S+ - - .* (ERROR|FATAL)\b|\b(ERROR|FATAL|level=error)\b`)

// decoration are the marks before a line, by which programs group their lines.
var decoration = lazyregexp.New(`^(npm (error|ERR!)|[×╰─▶├│┌└>]+)\s*`)

// bare returns a line without what stands before its words, and whether the line is one of a
// group of an error's lines, of which the first tells most.
func bare(line string) (text string, ofGroup bool) {
	text = strings.TrimSpace(line)
	for {
		rest := decoration().ReplaceAllString(text, "")
		if rest == text {
			return text, ofGroup
		}
		text, ofGroup = rest, ofGroup || strings.HasPrefix(text, "npm ")
	}
}

// request is how npm says what it has just asked a registry or its cache for, and what its cache
// had of that: hit, revalidated, stale, updated, miss or skip.
var request = lazyregexp.New(`^npm http (?:fetch|cache) (?:[A-Z]+ \d+ )?https?://[^/]+/(\S+)(?:.*\(cache (\w+)\))?`)

// IsDownload reports whether a line says no more than what npm has fetched.
func IsDownload(line string) bool { return strings.HasPrefix(line, "npm http ") }

// Doing returns for people what a program does, by a line that it writes while it starts.
func Doing(line string) string {
	m := request().FindStringSubmatch(line)
	if m == nil {
		return line
	}
	if name, err := url.PathUnescape(m[1]); err == nil {
		m[1] = name
	}
	switch m[2] {
	case "hit", "stale":
		return "npm has " + m[1] + " in its cache"
	case "revalidated": // the registry has said that the cache has the latest
		return "npm has checked " + m[1]
	}
	return "npm downloads " + m[1]
}

// Line returns the line of a program's last lines that says most about why it ended, without
// decoration; "" if there is none. A line that begins as an error does counts more than
// others. Of several the last counts, as in a traceback of Python, but of npm's the first.
func Line(lines []string) string {
	var plain, best string
	grouped, branch := false, false // branch: the best line is uv's, which goes on in the next ones
	for _, line := range lines {
		text, ofGroup := bare(line)
		switch {
		case noise().MatchString(text):
		case ofGroup:
			if !grouped {
				best, grouped = text, true
			}
		case strings.ContainsAny(line, "╰├×"):
			best, branch = text, true
			continue
		case branch && strings.HasPrefix(line, "   "):
			best += " " + text
			continue
		case reason().MatchString(text) && !grouped:
			best = text
		default:
			plain = text
		}
		branch = false
	}
	switch {
	case best != "":
		return best
	case plain != "":
		return plain
	}
	// There is nothing but noise: the last of it is better than nothing.
	for _, line := range slices.Backward(lines) {
		if text := strings.TrimSpace(line); text != "" {
			return text
		}
	}
	return ""
}
