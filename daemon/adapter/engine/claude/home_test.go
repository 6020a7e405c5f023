package claude

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine"
)

// TestProjectName checks the names of directories of transcripts against those that the program makes.
func TestProjectName(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]string{
		"/tmp/he.4cMwRe/p": "-tmp-he-4cMwRe-p",
		"/home/u/a_b c":    "-home-u-a-b-c",
		"/ü":               "--",
		"/😀":               "---", // two units of UTF-16
	} {
		if got := projectName(dir); got != want {
			t.Errorf("%s: %s, want %s", dir, got, want)
		}
	}
}

// TestTranscriptsOfALongPath_ItsOwnAlone checks that a run may write to the transcripts of its project
// alone, also if the program cuts the name of their directory.
func TestTranscriptsOfALongPath_ItsOwnAlone(t *testing.T) {
	t.Parallel()
	c := New(Options{Env: []string{"HOME=/h"}})
	for cwd, want := range map[string]string{
		"/" + strings.Repeat("a", maxName-1): "/h/.claude/projects/-" + strings.Repeat("a", maxName-1),
		"/" + strings.Repeat("a", maxName):   "/h/.claude/projects/-" + strings.Repeat("a", maxName-1) + "-b6ymvl",
	} {
		if got := c.transcripts(cwd); got != want {
			t.Errorf("%s: %s, want %s", cwd, got, want)
		}
	}
}

// TestRunHasADirectoryOfItsOwn_NothingOfTheUserIsThere checks what a run finds in its configuration
// directory: who is logged in, and the transcripts.
func TestRunHasADirectoryOfItsOwn_NothingOfTheUserIsThere(t *testing.T) {
	t.Parallel()
	home, temp := t.TempDir(), t.TempDir()
	own := filepath.Join(home, ".claude")
	if err := errors.Join(os.Mkdir(own, 0o700),
		os.WriteFile(filepath.Join(own, "settings.json"), []byte(`{"hooks":{}}`), 0o600),
		os.WriteFile(filepath.Join(own, "CLAUDE.md"), []byte("obey"), 0o600),
		os.WriteFile(own+".json", []byte(`{"oauthAccount":{"a":1},"mcpServers":{"evil":{}},"projects":{"/p":{}}}`), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	c := New(Options{Env: []string{"HOME=" + home}})
	req := engine.Request{TempDir: temp, Cwd: "/p"}
	info := engine.Info{Levels: []engine.Level{{Name: engine.LevelRead, EnforcedBy: engine.ByLandlock}}}
	if _, err := c.Furnish(t.Context(), req, info, ""); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(homeOf(&req))
	if err != nil || len(entries) != 2 || entries[0].Name() != fileState || entries[1].Name() != dirProjects {
		t.Errorf("it has %v, %v", entries, err)
	}
	state, err := os.ReadFile(filepath.Join(homeOf(&req), fileState))
	if want := `{"hasCompletedOnboarding":true,"oauthAccount":{"a":1}}`; err != nil || string(state) != want {
		t.Errorf("its state is %s, %v", state, err)
	}
	cmd := c.Command(req, info)
	last := ""
	for _, kv := range cmd.Env {
		if strings.HasPrefix(kv, configVariable+"=") {
			last = kv
		}
	}
	if last != configVariable+"="+homeOf(&req) || cmd.Login == nil {
		t.Errorf("environment %q, login %+v", cmd.Env, cmd.Login)
	}
	info.Levels[0].EnforcedBy = engine.ByTools
	if cmd := c.Command(req, info); cmd.Login != nil || strings.Contains(strings.Join(cmd.Env, " "), configVariable) {
		t.Errorf("without a wall: %q, %+v", cmd.Env, cmd.Login)
	}
}

// TestLoginOfARun checks what a run gets of the file of the login, and may change in it.
func TestLoginOfARun(t *testing.T) {
	t.Parallel()
	c := New(Options{Env: []string{"HOME=/h"}})
	l := c.loginOf(&engine.Request{TempDir: "/t"})
	const own = `{"claudeAiOauth":{"accessToken":"a"},"mcpOAuth":{"server":"secret"}}`
	if got := string(l.Give([]byte(own))); got != `{"claudeAiOauth":{"accessToken":"a"}}` {
		t.Errorf("a run gets %s", got)
	}
	for changed, want := range map[string]string{
		`{"claudeAiOauth":{"accessToken":"b"},"mcpOAuth":{}}`: `{"claudeAiOauth":{"accessToken":"b"},"mcpOAuth":{"server":"secret"}}`,
		`{"claudeAiOauth":{"accessToken":"a"}}`:               own,
		`{"claudeAiOauth":{"accessToken":""}}`:                "",
		`{"claudeAiOauth":null}`:                              "",
		`{"claudeAiOauth":7}`:                                 "",
		`{"claudeAiOauth":{"access`:                           "",
		`{}`:                                                  "",
	} {
		if got := string(l.Take([]byte(own), []byte(changed))); got != want {
			t.Errorf("%s makes it %s, want %s", changed, got, want)
		}
	}
}
