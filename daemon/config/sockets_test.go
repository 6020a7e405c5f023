package config

import (
	"strings"
	"testing"
)

// TestSocketsRefused checks the mistakes that a file can make with sockets.
func TestSocketsRefused(t *testing.T) {
	socket := func(keys string) string {
		return `{"mcpServers": {"docs": {"command": "x"}}, "sockets": {"box": {` + keys + `}}}`
	}
	for in, want := range map[string]string{
		socket(`"servers": ["docs"]`):                                                             "sockets.box.allow: wants at least one glob",
		socket(`"allow": ["docs__*"], "servers": ["dosc"]`):                                       "sockets.box.servers[0]: server dosc is not configured",
		socket(`"allow": [""]`):                                                                   "sockets.box.allow[0]: is no glob",
		socket(`"allow": ["x"], "uids": [-1]`):                                                    "sockets.box.uids: -1 is the number of no user",
		socket(`"allow": ["x"], "path": "box.sock"`):                                              "sockets.box.path: wants a path",
		socket(`"allow": ["x"], "paths": {"workspace": "/src"}`):                                  "sockets.box.paths.workspace: wants a directory of the guest",
		socket(`"allow": ["x"], "paths": {"/w/../x": "/src"}`):                                    "wants a directory of the guest",
		socket(`"allow": ["x"], "paths": {"/workspace": "src"}`):                                  "sockets.box.paths./workspace: wants a path",
		socket(`"allow": ["x"], "in_flight": 0`):                                                  "sockets.box.in_flight: wants 1 to 4096",
		socket(`"alow": ["x"]`):                                                                   `unknown key "sockets.box.alow" (did you mean allow?)`,
		`{"sockets": {"12": {"allow": ["x"]}}}`:                                                   "sockets.12: the name wants a letter",
		`{"sockets": {"..": {"allow": ["x"]}}}`:                                                   "sockets...: the name wants a letter",
		`{"sockets": {"a b": {"allow": ["x"]}}}`:                                                  "sockets.a b: the name wants",
		`{"sockets": {"a": {"allow": ["x"], "path": "/s"}, "b": {"allow": ["x"], "path": "/s"}}}`: "is that of the socket a",
	} {
		if _, err := Parse("c", []byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
	c, err := Parse("c", []byte(socket(`"allow": ["docs__*"], "path": "~/s/box", "paths": {"/workspace": "~/src/app"}`)))
	if err != nil {
		t.Fatal(err)
	}
	if s := c.WithHome("/home/u").Sockets["box"]; s.Path != "/home/u/s/box" || s.Paths["/workspace"] != "/home/u/src/app" {
		t.Errorf("with a home: %+v", s)
	}
	if c.Sockets["box"].Paths["/workspace"] != "~/src/app" {
		t.Error("WithHome changed the configuration")
	}
}

// TestProjectOf checks which project a directory of a guest stands for.
func TestProjectOf(t *testing.T) {
	s := Socket{Paths: map[string]string{"/work": "/src/a", "/work/b": "/src/b"}}
	for cwd, want := range map[string]string{
		"/work": "/src/a", "/work/": "/src/a", "/work/x/y": "/src/a", "/work/b": "/src/b", "/work/b/c": "/src/b",
		"/work/bc": "/src/a", "/workshop": "", "/": "", "": "", "/work/../etc": "", "work": "",
	} {
		if got := s.ProjectOf(cwd); got != want {
			t.Errorf("ProjectOf(%q) = %q, want %q", cwd, got, want)
		}
	}
	all := Socket{Paths: map[string]string{"/": "/src"}}
	if got := all.ProjectOf("/any"); got != "/src" {
		t.Errorf("below /: %q", got)
	}
}
