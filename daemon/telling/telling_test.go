package telling

import (
	"strings"
	"testing"
)

// TestLine checks which line is chosen of what real programs write when they fail.
func TestLine(t *testing.T) {
	for _, x := range []struct{ name, tail, want string }{
		{
			"npx, no such package", `npm warn Unknown user config "nodedir". This will stop working in the next ` +
				`major version of npm.
npm error code E404
npm error 404 Not Found - GET https://registry.npmjs.org/no-such-pkg
npm error 404
npm error 404  The requested resource 'no-such-pkg@*' could not be found or you do not have permission to access it.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /home/u/.npm/_logs/2026-11-23T10_52_13_670Z-debug-0.log`,
			"404 Not Found - GET https://registry.npmjs.org/no-such-pkg",
		},
		{
			"an older npm, no network", `npm ERR! code ENOTFOUND
npm ERR! syscall getaddrinfo
npm ERR! errno ENOTFOUND
npm ERR! network request to https://registry.npmjs.org/x failed, reason: getaddrinfo ENOTFOUND registry.npmjs.org
npm ERR! network This is a problem related to network connectivity.
npm ERR! A complete log of this run can be found in: /home/u/.npm/_logs/x.log`,
			"network request to https://registry.npmjs.org/x failed, reason: getaddrinfo ENOTFOUND " +
				"registry.npmjs.org",
		},
		{
			"npx, a package without a program", `npm error could not determine executable to run
npm error A complete log of this run can be found in: /home/u/.npm/_logs/x.log`,
			"could not determine executable to run",
		},
		{
			"npx, downloads before the server fails", `npm http fetch GET 200 https://registry.npmjs.org/zod 74ms (cache miss)
MEMORY_FILE is not set
npm notice
npm notice New minor version of npm available! 11.19.1 -> 11.21.2
npm notice To update run: npm install -g npm@11.21.2
npm http fetch GET 200 https://registry.npmjs.org/npm 257ms`,
			"MEMORY_FILE is not set",
		},
		{
			"node, no such module", `node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module 'nope'
Require stack:
- /srv/server.js
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: [ '/srv/server.js' ]
}

Node.js v20.20.2`,
			"Error: Cannot find module 'nope'",
		},
		{
			"python, a traceback", `Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode
    raise JSONDecodeError("Expecting value", s, err.value) from None
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)`,
			"json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
		},
		{
			"python, an error while another is handled", `KeyError: 'TOKEN'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/srv/server.py", line 9, in main
ValueError: TOKEN is not set`,
			"ValueError: TOKEN is not set",
		},
		{
			"python, no such module", "/usr/bin/python3: No module named no_such_module",
			"/usr/bin/python3: No module named no_such_module",
		},
		{
			"uvx, no such package", `  × No solution found when resolving tool dependencies:
  ╰─▶ Because no-such-pkg was not found in the package registry and you require
      no-such-pkg, we can conclude that your requirements are unsatisfiable.`,
			"Because no-such-pkg was not found in the package registry and you require " +
				"no-such-pkg, we can conclude that your requirements are unsatisfiable.",
		},
		{
			"uvx, a program that is not there", "error: Failed to spawn: `tool`\n  Caused by: No such file or " +
				"directory (os error 2)",
			"error: Failed to spawn: `tool`",
		},
		{
			"docker", `docker: Error response from daemon: pull access denied for no/such, repository does not exist.
See 'docker run --help'.`,
			"docker: Error response from daemon: pull access denied for no/such, repository does not exist.",
		},
		{
			"go", "panic: no token\n\ngoroutine 1 [running]:\nmain.main()\n\t/srv/main.go:4 +0x2c\nexit status 2",
			"panic: no token",
		},
		{"rust", "thread 'main' panicked at src/main.rs:2:5:\nno token\n" +
			"note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace", "no token"},
		{"a plain last line", "starting\nbad credentials\n", "bad credentials"},
		{"nothing but noise", "}\n\n", "}"},
		{"nothing", "", ""},
	} {
		if got := Line(strings.Split(x.tail, "\n")); got != x.want {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
}

// TestDoing checks that people see what npm downloads and what it has, and other lines as they are.
func TestDoing(t *testing.T) {
	for line, want := range map[string]string{
		"npm http fetch GET 200 https://registry.npmjs.org/@cfworker%2fjson-schema 108ms (cache miss)": "npm downloads " +
			"@cfworker/json-schema",
		"npm http cache https://npm.example.org:8443/zod 3ms (cache hit)":                       "npm has zod in its cache",
		"npm http fetch GET 200 https://registry.npmjs.org/zod 3ms attempt #2 (cache stale)":    "npm has zod in its cache",
		"npm http fetch GET 200 https://registry.npmjs.org/zod 90ms (cache revalidated)":        "npm has checked zod",
		"npm http fetch GET 200 https://registry.npmjs.org/zod 90ms attempt #2 (cache updated)": "npm downloads zod",
		"npm http fetch GET 200 https://registry.npmjs.org/zod 90ms":                            "npm downloads zod",
		"npm http fetch GET 200 https://registry.npmjs.org/a%zz 1ms (cache miss)":               "npm downloads a%zz",
		"npm warn deprecated inflight@1.0.6: This module is not supported":                      "npm warn deprecated inflight@1.0.6: This module is not supported",
		"Downloading pydantic-core (1.9MiB)":                                                    "Downloading pydantic-core (1.9MiB)",
	} {
		if got := Doing(line); got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
}
