package claudetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Versions returns the versions of the real program that the end-to-end tests run: a recent
// one, and the one that npm still installs where node is old.
func Versions() []string { return []string{"2.1.329", "2.1.197"} }

// Install installs the real Claude Code of an exact version from npm into dir, unless it is
// there already, and returns the path of its program. It needs npm on PATH and, the first
// time, the network. dir is a cache; several processes may share it at once.
//
// The program is the native one from the platform's package: npm does not run the script
// that would put it in place.
func Install(ctx context.Context, dir, version string) (string, error) {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	bin := filepath.Join("node_modules", "@anthropic-ai", "claude-code-"+runtime.GOOS+"-"+arch, "claude")
	root, err := InstallPackages(ctx, dir, "claude-"+version, "@anthropic-ai/claude-code@"+version)
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, bin)
	if !isFile(path) {
		return "", fmt.Errorf("claude-code %s has no program for %s on %s", version, runtime.GOOS, runtime.GOARCH)
	}
	return path, nil
}

// InstallPackages installs packages of exact versions from npm into the directory name of dir,
// unless that is there already, and returns it. npm runs none of their scripts, and has a home of
// its own in dir. It needs npm on PATH and, the first time, the network. dir is a cache; several
// processes may share it at once.
func InstallPackages(ctx context.Context, dir, name string, specs ...string) (string, error) {
	root, home := filepath.Join(dir, name), filepath.Join(dir, "npmhome")
	isThere := func() bool {
		_, err := os.Stat(filepath.Join(root, "node_modules"))
		return err == nil
	}
	if isThere() {
		return root, nil
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	// Install into a temporary directory and rename it, so that an interrupted install is
	// not taken for a complete one.
	temp, err := os.MkdirTemp(dir, "."+name+"-")
	if err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	defer os.RemoveAll(temp)
	cmd := exec.CommandContext(ctx, "npm",
		append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", temp}, specs...)...)
	cmd.Dir, cmd.Env = temp, append(cmd.Environ(), "HOME="+home)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install %q: %w: %s", specs, err, strings.TrimSpace(string(out)))
	}
	if err := os.Rename(temp, root); err != nil && !isThere() {
		return "", fmt.Errorf("putting the install in place: %w", err)
	}
	return root, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
