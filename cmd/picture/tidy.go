package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// left out are scenes that repeat others, or that take long to read.
var leftOut = regexp.MustCompile(`sees progress|^telemetry_snapshot|^\$ holdline consult|^consults use|` +
	`^health_snapshot|^\$ holdline servers add`)

// shortened are parts of a line, or whole lines, that say nothing to a viewer.
var shortened = regexp.MustCompile(`^\[consult .*| \(private: .*\)`)

var (
	directory = regexp.MustCompile(`/tmp/holdline-demo-\d+`)
	number    = regexp.MustCompile(`\b(?:daemon|proxy|process|pid|kill -9) (\d+)\b`)
	consultID = regexp.MustCompile(`\b[0-9a-f]{12}\b`)
)

// mostLines bounds a scene: a longer one ends with a line of dots.
const mostLines = 16

// tidy returns the scenes that the picture shows, with a first one for the command, with lines
// that fit the terminal, and with names in place of what differs in each run.
func tidy(scenes []scene) []scene {
	shown := []scene{{0, []string{"$ make demo"}}}
	replace := newNames(scenes)
	for _, s := range scenes {
		if leftOut.MatchString(s.lines[0]) {
			continue
		}
		kept := scene{at: s.at}
		for i, line := range s.lines {
			line = replace.Replace(shortened.ReplaceAllString(line, ""))
			if line == "" && (i+1 == len(s.lines) || len(kept.lines) == 0 || kept.lines[len(kept.lines)-1] == "") {
				continue
			}
			kept.lines = append(kept.lines, wrap(line)...)
		}
		if len(kept.lines) > mostLines {
			kept.lines = append(kept.lines[:mostLines], "…")
		}
		if strings.HasPrefix(kept.lines[0], "$ ") { // room before a command
			kept.lines = append([]string{""}, kept.lines...)
		}
		shown = append(shown, kept)
	}
	return shown
}

// newNames returns what replaces the directory, the process numbers and the ids of consults.
// Each gets a name of the same length, so that tables stay aligned.
func newNames(scenes []scene) *strings.Replacer {
	var pairs []string
	seen := map[string]bool{}
	add := func(old, name string) {
		if !seen[old] {
			seen[old] = true
			pairs = append(pairs, old, name)
		}
	}
	for _, s := range scenes {
		text := strings.Join(s.lines, "\n")
		for _, dir := range directory.FindAllString(text, -1) {
			add(dir, "/tmp/demo")
		}
		for _, m := range number.FindAllStringSubmatch(text, -1) {
			add(m[1], strconv.Itoa(4*int(math.Pow10(len(m[1])-1))+100+len(seen)))
		}
		for _, id := range consultID.FindAllString(text, -1) {
			add(id, fmt.Sprintf("%012x", 0x966c_8626_5f5c+int64(len(seen))*0x1_1357_9bdf))
		}
	}
	return strings.NewReplacer(pairs...)
}

// wrap splits a line at spaces into lines that fit the terminal. Of a table's line it keeps the
// columns that fit: two spaces are between them.
func wrap(line string) []string {
	chars := []rune(line)
	if len(chars) <= columns {
		return []string{line}
	}
	if strings.Contains(strings.TrimSpace(string(chars[:columns])), "  ") {
		fits := string(chars[:columns])
		return []string{strings.TrimRight(fits[:strings.LastIndex(fits, "  ")], " ")}
	}
	end := columns
	for i, c := range chars[:columns] {
		if c == ' ' && i > 0 {
			end = i
		}
	}
	return append([]string{string(chars[:end])}, wrap(strings.TrimLeft(string(chars[end:]), " "))...)
}
