package userenv

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/config"
)

// TestReadPath checks which contents of the file with the captured PATH are accepted.
func TestReadPath(t *testing.T) {
	dir := t.TempDir()
	file := PathFile(dir)
	if _, err := ReadPath(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	for content, want := range map[string]string{
		"/a:/b\n": "/a:/b", "/a": "/a", "": "", "\n": "", "/a\n/b\n": "", "/a\x00\n": "",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadPath(file)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("ReadPath of %q = %q, %v, want %q", content, got, err, want)
		}
		if want == "" && !strings.Contains(err.Error(), "holdline install --path") {
			t.Errorf("%q: the error names no way out: %v", content, err)
		}
	}
	if err := os.Chmod(file, 0o622); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPath(file); !errors.Is(err, config.ErrUnsafe) {
		t.Errorf("a file that others can write: %v", err)
	}
	if env, err := WithCaptured([]string{"PATH=/x"}, file); !slices.Equal(env, []string{"PATH=/x"}) || err == nil {
		t.Errorf("WithCaptured of it = %v, %v", env, err)
	}
	if env, err := WithCaptured([]string{"PATH=/x"}, file+"none"); !slices.Equal(env, []string{"PATH=/x"}) ||
		err != nil {
		t.Errorf("WithCaptured without one = %v, %v", env, err)
	}
}

// TestWithPath checks that the captured PATH stands in front of the environment's, without
// repetitions.
func TestWithPath(t *testing.T) {
	for _, c := range []struct {
		environ  []string
		captured string
		want     []string
	}{
		{[]string{"A=1", "PATH=/x:/a", "B=2"}, "/a:/b", []string{"A=1", "B=2", "PATH=/a:/b:/x"}},
		{[]string{"A=1"}, "/a", []string{"A=1", "PATH=/a"}},
		{[]string{"PATH=/x"}, "", []string{"PATH=/x"}},
	} {
		if got := WithPath(c.environ, c.captured); !slices.Equal(got, c.want) {
			t.Errorf("WithPath(%v, %q) = %v, want %v", c.environ, c.captured, got, c.want)
		}
	}
}
