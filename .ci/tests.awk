# Reads `go test -v` and prints what people want to see: one line a package,
# everything of a package that fails, and last the tests that were skipped, by
# name and with the reason that they gave, and those that failed.

function flush_all(   i) {
	for (i = 1; i <= n; i++) print held[i]
	n = 0
}

/^=== (RUN|CONT|NAME)/ { test = $3; next }

/^=== PAUSE/ { next }

/^ *--- SKIP: / {
	skipped[++skips] = "  " $3 (said[$3] == "" ? "" : ": " said[$3])
	next
}

/^ *--- PASS: / { next }

/^(ok|\?)[ \t]/ || /\[no test files\]$/ || /^\t.*coverage: / {
	n = 0
	print
	fflush()
	where()
	next
}

/^--- FAIL: / { bad[++bads] = $3 }

/^FAIL[ \t]/ {
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

# where adds the package to the skips that it had.
function where(   i) {
	for (i = marked + 1; i <= skips; i++) skipped[i] = "  " $2 "." substr(skipped[i], 3)
	marked = skips
	for (i = told + 1; i <= bads; i++) bad[i] = $2 "." bad[i]
	told = bads
	split("", said)
}

END {
	flush_all()
	if (skips) {
		printf "skipped %d test%s:\n", skips, skips == 1 ? "" : "s"
		for (i = 1; i <= skips; i++) print skipped[i]
	} else print "skipped no test"
	if (bads) {
		printf "failed %d test%s:\n", bads, bads == 1 ? "" : "s"
		for (i = 1; i <= bads; i++) print "  " bad[i]
	}
	exit failed
}
