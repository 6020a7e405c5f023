package contrib

import (
	"bytes"
	_ "embed"
	"encoding/xml"
	"html"
	"regexp"
)

// LaunchLabel is the name by which launchctl knows the daemon.
const LaunchLabel = "holdline.daemon"

// LaunchAgentFile is the name of the file in ~/Library/LaunchAgents.
const LaunchAgentFile = LaunchLabel + ".plist"

// LaunchLog is the path of the log in the home directory.
const LaunchLog = "Library/Logs/holdline.log"

//go:embed launchd/holdline.daemon.plist
var launchAgent []byte

// What stands in the packaged file for what differs between machines.
const (
	launchBin  = "/usr/local/bin/holdline"
	launchHome = "/Users/USER"
)

// LaunchAgent returns the LaunchAgent that runs the binary at bin for the user with that home
// directory, and logs to [LaunchLog] in it. Both paths are absolute.
func LaunchAgent(bin, home string) []byte {
	out := bytes.ReplaceAll(launchAgent, []byte(launchHome), escaped(home))
	return bytes.ReplaceAll(out, []byte(">"+launchBin+"<"), append(append([]byte(">"), escaped(bin)...), '<'))
}

// programPattern finds the program in a LaunchAgent.
var programPattern = regexp.MustCompile(`<key>ProgramArguments</key>\s*<array>\s*<string>([^<]*)</string>`)

// LaunchProgram returns the program that a LaunchAgent starts, or "" if it names none.
func LaunchProgram(agent []byte) string {
	found := programPattern.FindSubmatch(agent)
	if found == nil {
		return ""
	}
	return html.UnescapeString(string(found[1]))
}

// escaped returns s as the text of an XML element.
func escaped(s string) []byte {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer takes everything
	return b.Bytes()
}
