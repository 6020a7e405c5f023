// Command dist makes the archives of a release. Each archive holds the programs for
// one system, its completions and man pages, the units and the documents. SHA256SUMS
// is written beside the archives.
//
// The same source, version and Go make the same bytes on every machine at every time:
// the program is built without paths and settings of the machine, and all files in an
// archive have the same time and owner.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holdline/cmd/holdline/cli"
	"holdline/cmd/holdline/pair"
)

// main makes the archives that the flags ask for.
func main() {
	r := release{}
	targets := ""
	flag.StringVar(&r.out, "out", "dist", "directory for the archives; existing ones are replaced")
	flag.StringVar(&r.version, "version", "", "version")
	flag.StringVar(&r.commit, "commit", "", "commit")
	flag.StringVar(&targets, "targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64",
		"systems, as GOOS/GOARCH")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := r.epoch(os.Getenv("SOURCE_DATE_EPOCH"))
	if err == nil {
		err = r.make(ctx, strings.Split(targets, ","))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "dist: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// programs are in each archive, by the names of their packages.
var programs = []string{pair.Whole, pair.Small, pair.Top}

// release is what all archives of a release have in common: where they go, and what they are
// made of.
type release struct {
	out, version, commit string
	time                 time.Time // of every file in the archives
}

// epoch sets the time of the files from seconds of unix time.
func (r *release) epoch(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("SOURCE_DATE_EPOCH is %q: want the seconds of unix time of the commit, "+
			"as `make dist` sets them", s)
	}
	r.time = time.Unix(n, 0).UTC()
	return nil
}

// make writes an archive for each target, and their checksums. It collects the files of
// an archive in a temporary directory, where each target replaces the programs of the
// target before.
func (r *release) make(ctx context.Context, targets []string) error {
	if r.version == "" {
		return errors.New("no version is given: -version")
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // it is for others to read
		return err
	}
	files, err := os.MkdirTemp("", "holdline-dist")
	if err != nil {
		return err
	}
	defer os.RemoveAll(files)
	if err := r.writeDocuments(files); err != nil {
		return err
	}
	var sums bytes.Buffer
	// The documents stay in the directory; only the programs differ between targets.
	for _, target := range targets {
		goos, goarch, ok := strings.Cut(target, "/")
		if !ok {
			return fmt.Errorf("target %q: want GOOS/GOARCH", target)
		}
		for _, program := range programs {
			if err := r.build(ctx, program, filepath.Join(files, program), goos, goarch); err != nil {
				return fmt.Errorf("%s: %w", target, err)
			}
		}
		archive, err := pack(os.DirFS(files), r.name(goos, goarch), r.time)
		if err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		name := r.name(goos, goarch) + ".tar.gz"
		if err := r.writeOut(name, archive); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(archive), name)
	}
	if err := r.writeOut("SHA256SUMS", sums.Bytes()); err != nil {
		return err
	}
	_, err = sums.WriteTo(os.Stdout)
	return err
}

// writeOut writes a file beside the archives.
func (r *release) writeOut(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644) //nolint:gosec // it is for others to read
}

// name returns the name of an archive without its extension, which is also the name of
// the directory in it.
func (r *release) name(goos, goarch string) string {
	return fmt.Sprintf("holdline-%s-%s-%s", r.version, goos, goarch)
}

// build compiles a program for one system and writes it to a path. It overrides what this
// machine or its user sets for the go command, such as GOFLAGS, so that the bytes are the same
// everywhere.
func (r *release) build(ctx context.Context, program, to, goos, goarch string) error {
	const env = "holdline/cmd/holdline/cmdenv"
	// By this build id holdline knows that holdline-stdio is of its build.
	ldflags := fmt.Sprintf("-s -w -buildid=holdline/%s/%s -X %s.Version=%s -X %s.Commit=%s",
		r.version, r.commit, env, r.version, env, r.commit)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags,
		"-o", to, "./cmd/"+program)
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0",
		"GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// writeDocuments writes the files that are the same for all systems into dir: documents, the
// files of contrib for users, man pages and completions.
func (r *release) writeDocuments(dir string) error {
	for _, name := range []string{"README.md", "CHANGELOG.md", "LICENSE"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	contrib := filepath.Join(dir, "contrib")
	if err := os.CopyFS(contrib, os.DirFS("contrib")); err != nil {
		return err
	}
	// What belongs to the Go package is not for users.
	code, err := filepath.Glob(filepath.Join(contrib, "*.go"))
	if err != nil {
		return err
	}
	for _, path := range append(code, filepath.Join(contrib, "systemd/lab")) { // the lab is for tests
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return r.writeGenerated(filepath.Join(dir, "man/man1"), filepath.Join(dir, "completions"))
}

// writeGenerated writes the man pages and the completions of the command tree.
func (r *release) writeGenerated(man, completions string) error {
	for _, dir := range []string{man, completions} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	scripts, err := cli.Completions()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		filepath.Join(completions, "holdline.bash"): scripts["bash"],
		filepath.Join(completions, "_holdline"):     scripts["zsh"],
		filepath.Join(completions, "holdline.fish"): scripts["fish"],
	}
	for name, page := range cli.ManPages(r.version) {
		files[filepath.Join(man, name)] = page
	}
	for path, data := range files {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
