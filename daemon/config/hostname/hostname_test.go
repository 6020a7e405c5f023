package hostname

import "testing"

// TestCheck checks which names of hosts are taken: programs get them as arguments.
func TestCheck(t *testing.T) {
	for host, ok := range map[string]bool{
		"build-box": true, "me@build.example.org": true, "10.0.0.7": true, "docker:db_1": true, "podman:x": true,
		"kube:ns/pod-0": true,
		"":              false, "-oProxyCommand=x": false, "docker:": false, "docker:-v": false, "ssh:x": false, ":x": false,
		"a b": false, "a;b": false, "$(x)": false, "a'b": false, "x:y:z": false, "docker:a:b": false,
	} {
		if err := Check(host); (err == nil) != ok {
			t.Errorf("Check(%q) = %v", host, err)
		}
	}
}
