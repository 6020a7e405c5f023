package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScript runs the commands as a user types them. Each script has a home of its own;
// what it starts is stopped at its end.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// served waits until a daemon answers.
			"served": func(ts *testscript.TestScript, _ bool, _ []string) {
				deadline := time.Now().Add(waitLimit)
				for ts.Exec("holdline", "status") != nil {
					if time.Now().After(deadline) {
						ts.Fatalf("no daemon answers")
					}
				}
			},
			// modeof checks the mode of a file, not that of a link's target.
			"modeof": func(ts *testscript.TestScript, _ bool, args []string) {
				info, err := os.Lstat(ts.MkAbs(args[0]))
				ts.Check(err)
				if got := info.Mode().String(); got != args[1] {
					ts.Fatalf("%s has mode %s, want %s", args[0], got, args[1])
				}
			},
		},
		Setup: func(env *testscript.Env) error {
			// A socket's path must be short, and the path of the script's directory
			// contains the script's name.
			dir, err := os.MkdirTemp("", "hls")
			if err != nil {
				return err
			}
			p := &place{t: t, dir: dir, project: env.WorkDir}
			for _, d := range []string{"home", "run"} {
				if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
					return err
				}
			}
			p.env = []string{
				"HOME=" + filepath.Join(dir, "home"),
				"XDG_RUNTIME_DIR=" + filepath.Join(dir, "run"),
				"PATH=" + programs + ":" + os.Getenv("PATH"),
				"ANTHROPIC_API_KEY=stand-in",
				races(dir),
			}
			env.Vars = append(env.Vars, p.env...)
			env.Defer(func() {
				p.nothingLeft()
				_ = os.RemoveAll(dir)
			})
			return nil
		},
	})
}
