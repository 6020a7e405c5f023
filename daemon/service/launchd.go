package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"holdline/contrib"
	"holdline/daemon/command"
)

// LaunchAgent is holdline's agent of this user's launchd. Make it with
// [FindLaunchAgent].
type LaunchAgent struct {
	file      string // "" where there is no launchd
	launchctl string
}

// FindLaunchAgent returns the agent of this environment. It reads no file.
func FindLaunchAgent(env func(string) string) LaunchAgent {
	home := env("HOME")
	if runtime.GOOS != "darwin" || !filepath.IsAbs(home) {
		return LaunchAgent{}
	}
	file := filepath.Join(home, "Library", "LaunchAgents", contrib.LaunchAgentFile)
	return LaunchAgent{file: file, launchctl: "/bin/launchctl"}
}

// Start asks launchd to start the daemon, and reports whether launchd does so. Then no
// other process may start a daemon, which would be in launchd's way. launchd does not
// if the agent is not installed or not loaded.
func (a LaunchAgent) Start(ctx context.Context) bool {
	if a.file == "" {
		return false
	}
	if _, err := os.Stat(a.file); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := command.Command{
		Path: a.launchctl, Args: []string{"kickstart", fmt.Sprintf("gui/%d/%s", os.Getuid(), contrib.LaunchLabel)},
		Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/",
	}
	_, err := cmd.Run(ctx)
	return err == nil
}
