# Reads `go test -v` and prints what people want to see: everything of a package that fails,
# at the end the tests that were skipped, by reason and name, those that failed, and how many of
# all there were. On a terminal one line shows how far it is.

BEGIN { terminal = system("test -t 1") == 0 }

function flush_all(   i) {
	for (i = 1; i <= n; i++) print held[i]
	n = 0
}

# progress shows the package that has just ended.
function progress() {
	packages++
	if (!terminal) return
	printf "\r\033[K%d packages, %d tests passed: %s", packages, passed, $2
	fflush()
}

function clear() { if (terminal) printf "\r\033[K" }

/^=== (RUN|CONT|NAME)/ { test = $3; next }

/^=== PAUSE/ { next }

/^ *--- SKIP: / {
	names[++skips] = $3
	why[skips] = said[$3] == "" ? "no reason given" : said[$3]
	next
}

/^ *--- PASS: / { passed++; next }

/^(ok|\?)[ \t]/ || /\[no test files\]$/ {
	n = 0
	progress()
	where()
	next
}

/^\t.*coverage: / { next }

/^ *--- FAIL: / { failures++ }

/^--- FAIL: / { bad[++bads] = $3 }

/^FAIL[ \t]/ {
	clear()
	flush_all()
	print
	fflush()
	failed = 1
	where()
	next
}

/^(PASS|FAIL)$/ { next }

{
	held[++n] = $0
	if (match($0, /^ +[A-Za-z0-9_]+\.go:[0-9]+: /)) said[test] = substr($0, RLENGTH + 1)
	if ($0 ~ /^(panic: |fatal error: )/) failed = 1
}

# where adds the package to the tests that failed in it.
function where(   i) {
	for (i = told + 1; i <= bads; i++) bad[i] = $2 "." bad[i]
	told = bads
	split("", said)
}

# groups sorts the skipped tests by reason. The cases of one test are one name with their number.
function groups(   i, reason, name, key) {
	for (i = 1; i <= skips; i++) {
		reason = why[i]
		if (match(reason, /^HOLDLINE_[A-Z0-9]+=[^ :]* is not set/)) reason = substr(reason, 1, RLENGTH)
		name = names[i]
		sub(/\/.*/, "", name)
		key = reason SUBSEP name
		if (!(reason in count)) order[++reasons] = reason
		count[reason]++
		if (!(key in cases)) list[reason] = list[reason] SUBSEP name
		cases[key]++
	}
}

# alike reports whether two reasons have the same tests, with as many cases each.
function alike(a, b,   parts, rest, i, k) {
	k = split(substr(list[a], 2), parts, SUBSEP)
	if (k != split(substr(list[b], 2), rest, SUBSEP)) return 0
	for (i = 1; i <= k; i++) if (cases[a, parts[i]] != cases[b, parts[i]]) return 0
	return 1
}

# join gives the tests that several reasons have to the first of these, with the words of all.
function join(   i, j) {
	for (i = 1; i <= reasons; i++) {
		words[order[i]] = order[i]
		for (j = 1; j < i; j++) {
			if (gone[j] || !alike(order[j], order[i])) continue
			words[order[j]] = words[order[j]] "; " order[i]
			gone[i] = 1
			break
		}
	}
}

# wrapped prints the names of a reason in lines of at most 120 columns.
function wrapped(reason,   parts, i, k, line, word) {
	k = split(substr(list[reason], 2), parts, SUBSEP)
	line = "  " words[reason] ":"
	for (i = 1; i <= k; i++) {
		word = parts[i]
		if (cases[reason, word] > 1) word = word " (" cases[reason, word] " cases)"
		if (i < k) word = word ","
		if (length(line " " word) > 120) {
			print line
			line = "   "
		}
		line = line " " word
	}
	print line
}

END {
	clear()
	flush_all()
	groups()
	join()
	if (skips) {
		printf "skipped %d test%s:\n", skips, skips == 1 ? "" : "s"
		for (i = 1; i <= reasons; i++) if (!gone[i]) wrapped(order[i])
	}
	if (bads) {
		printf "failed %d test%s:\n", bads, bads == 1 ? "" : "s"
		for (i = 1; i <= bads; i++) print "  " bad[i]
	}
	if (failed && !failures) failures = 1 # a package that did not build, or that ended early
	printf "%d passed, %d failed, %d skipped\n", passed, failures, skips
	exit failed
}
