package hostname

import "testing"

// TestCheck checks which names of hosts are taken: programs get them as arguments, and hand parts
// of them to other programs.
func TestCheck(t *testing.T) {
	for host, ok := range map[string]bool{
		"build-box": true, "me@build.example.org": true, "10.0.0.7": true, "docker:db_1": true, "podman:x": true,
		"kube:ns/pod-0": true, "me@corp.example@box": true, "team/box": true, "a-b@c-d": true,
		"": false, "-oProxyCommand=x": false, "docker:": false, "docker:-v": false, "ssh:x": false, ":x": false,
		"a b": false, "a;b": false, "$(x)": false, "a'b": false, "x:y:z": false, "docker:a:b": false,

		// A part of the name is an option.
		"x@-oOption": false, "x@-oProxyCommand=touch": false, "-l@box": false, "x@y@-oOption": false,
		"kube:ns/-v": false, "kube:-n/pod": false, "podman:-l": false, "x/-v": false, "@-x": false,
		// A part is missing.
		"@box": false, "me@": false, "me@@box": false, "kube:/pod": false, "kube:ns/": false, "/": false, "@": false,
		// What some programs take for another host, a port, or a jump host.
		"box:22": false, "me@box:22": false, "ssh://box": false, "a,b": false, "me@a,-oX@b": false, "[::1]": false,
		"docker:me@db": false, "podman:a/b": false, "docker:/db": false, "kube:me@pod": false, "Docker:db": false,
		// White space, control characters, and what looks like others.
		" box": false, "box ": false, "box\n": false, "box\x00": false, "a\tb": false, "box\r-v": false, "b\x7fx": false,
		"box\u00a0": false, "\u2010oX": false, "b\u00f6x": false, "\xff": false, "%h": false, "box=x": false, "~": false,
		`a\b`: false, "a*": false,
	} {
		if err := Check(host); (err == nil) != ok {
			t.Errorf("Check(%q) = %v", host, err)
		}
	}
}

// TestCheckSSH checks which hosts ssh is told to connect to.
func TestCheckSSH(t *testing.T) {
	for host, ok := range map[string]bool{
		"box": true, "me@box": true, "ssh://me@box:2222": true, "ssh://box": true,
		"ssh://me@-oX": false, "ssh://-x@box": false, "ssh://box:": false, "ssh://box:-1": false, "ssh://box:x": false,
		"ssh://box:70000": false, "ssh://": false, "x@-oOption": false, "-oX": false, "": false, "box:22": false,
		"docker:db": false, "ssh://a,b": false, "ssh://box:22:22": false, "ssh://box:+22": false, "ssh://box:0": false,
	} {
		if err := CheckSSH(host); (err == nil) != ok {
			t.Errorf("CheckSSH(%q) = %v", host, err)
		}
	}
}
