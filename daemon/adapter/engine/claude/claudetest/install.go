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
	root := filepath.Join(dir, "claude-"+version)
	bin := filepath.Join("node_modules", "@anthropic-ai", "claude-code-"+runtime.GOOS+"-"+arch, "claude")
	if path := filepath.Join(root, bin); isFile(path) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	// Install into a temporary directory and rename it, so that an interrupted install is
	// not taken for a complete one.
	temp, err := os.MkdirTemp(dir, ".claude-"+version+"-")
	if err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	defer os.RemoveAll(temp)
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", temp,
		"@anthropic-ai/claude-code@"+version)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if !isFile(filepath.Join(temp, bin)) {
		return "", fmt.Errorf("claude-code %s has no program for %s on %s", version, runtime.GOOS, runtime.GOARCH)
	}
	path := filepath.Join(root, bin)
	if err := os.Rename(temp, root); err != nil && !isFile(path) {
		return "", fmt.Errorf("putting the install in place: %w", err)
	}
	return path, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
