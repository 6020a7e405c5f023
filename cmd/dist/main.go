// Command dist makes the archives of a release: for each system the program,
// its completions and man pages, the units and the documents, and beside them
// SHA256SUMS. The same source, version and Go make the same bytes, wherever and
// whenever: paths and the machine's settings are kept out of the program, and an
// archive holds one time, one owner, and sorted names.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// main makes the archives that the flags ask for.
func main() {
	r := release{}
	targets := ""
	flag.StringVar(&r.out, "out", "dist", "directory for the archives; what lies there under their names is replaced")
	flag.StringVar(&r.version, "version", "", "version")
	flag.StringVar(&r.commit, "commit", "", "commit")
	flag.StringVar(&targets, "targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "systems, as GOOS/GOARCH")
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

// release is one making of all archives.
type release struct {
	out, version, commit string
	time                 time.Time // of every file in the archives
	tmp                  string
}

// epoch sets the time of the files, in seconds of unix time.
func (r *release) epoch(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("SOURCE_DATE_EPOCH is %q: want the seconds of unix time of the commit, as `make dist` sets them", s)
	}
	r.time = time.Unix(n, 0).UTC()
	return nil
}

// make writes an archive for each target, and their checksums.
func (r *release) make(ctx context.Context, targets []string) error {
	if r.version == "" {
		return errors.New("no version is given: -version")
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // it is for others to read
		return err
	}
	var err error
	if r.tmp, err = os.MkdirTemp("", "holdline-dist"); err != nil {
		return err
	}
	defer os.RemoveAll(r.tmp)
	common, err := r.documents(ctx)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, target := range targets {
		goos, goarch, ok := strings.Cut(target, "/")
		if !ok {
			return fmt.Errorf("target %q: want GOOS/GOARCH", target)
		}
		archive, err := r.archive(ctx, goos, goarch, common)
		if err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		name := r.name(goos, goarch) + ".tar.gz"
		if err := os.WriteFile(filepath.Join(r.out, name), archive, 0o644); err != nil { //nolint:gosec // it is for others to read
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(archive), name)
	}
	if err := os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), sums.Bytes(), 0o644); err != nil { //nolint:gosec // it is for others to read
		return err
	}
	_, err = sums.WriteTo(os.Stdout)
	return err
}

// name of an archive, and of the directory in it.
func (r *release) name(goos, goarch string) string {
	return fmt.Sprintf("holdline-%s-%s-%s", r.version, goos, goarch)
}

// archive is the packed release for one system.
func (r *release) archive(ctx context.Context, goos, goarch string, common []entry) ([]byte, error) {
	bin := filepath.Join(r.tmp, "holdline-"+goos+"-"+goarch)
	if err := r.build(ctx, bin, goos, goarch); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(bin)
	if err != nil {
		return nil, err
	}
	return pack(r.name(goos, goarch), append([]entry{{"holdline", 0o755, data}}, common...), r.time)
}

// build makes the program. What a machine or its user sets for the Go command
// is overridden.
func (r *release) build(ctx context.Context, to, goos, goarch string, more ...string) error {
	ldflags := fmt.Sprintf("-s -w -buildid= -X holdline/cmd/holdline/cmdenv.Version=%s -X holdline/cmd/holdline/cmdenv.Commit=%s", r.version, r.commit)
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", to}, more...)
	_, err := r.command(ctx, []string{
		"GOOS=" + goos, "GOARCH=" + goarch, "CGO_ENABLED=0", "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=",
	}, "go", append(args, "./cmd/holdline")...)
	return err
}

// documents are the files that are the same for all systems.
func (r *release) documents(ctx context.Context) ([]entry, error) {
	var list []entry
	for _, name := range []string{"README.md", "CHANGELOG.md", "LICENSE"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list = append(list, entry{name, 0o644, data})
	}
	units, err := tree("contrib", "contrib", func(name string) bool {
		return path.Ext(name) != ".go" && name != "systemd/lab" // which is for tests
	})
	if err != nil {
		return nil, err
	}
	generated, err := r.generated(ctx)
	return append(append(list, units...), generated...), err
}

// generated are the man pages and completions, as the program says them itself.
// The man pages come from a build of its own, so that what makes them is not in
// the program.
func (r *release) generated(ctx context.Context) ([]entry, error) {
	bin, man := filepath.Join(r.tmp, "holdline"), filepath.Join(r.tmp, "man", "man1")
	if err := r.build(ctx, bin, runtime.GOOS, runtime.GOARCH, "-tags", "man"); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(man, 0o700); err != nil {
		return nil, err
	}
	if _, err := r.command(ctx, []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.time.Unix(), 10)}, bin, "man", man); err != nil {
		return nil, err
	}
	list, err := tree(filepath.Dir(man), "man", func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	for shell, name := range map[string]string{"bash": "holdline.bash", "zsh": "_holdline", "fish": "holdline.fish"} {
		out, err := r.command(ctx, nil, bin, "completion", shell)
		if err != nil {
			return nil, err
		}
		list = append(list, entry{"completions/" + name, 0o644, out})
	}
	return list, nil
}

// command runs a program and returns what it printed on stdout.
func (r *release) command(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(name), cmp.Or(strings.Join(args, " "), "-"), err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.Bytes(), nil
}

// tree reads the files under a directory that are wanted, by their names within
// it; in the archive they are under prefix.
func tree(root, prefix string, wanted func(name string) bool) ([]entry, error) {
	var list []entry
	in := os.DirFS(root)
	err := fs.WalkDir(in, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !wanted(name) {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := int64(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		data, err := fs.ReadFile(in, name)
		list = append(list, entry{path.Join(prefix, name), mode, data})
		return err
	})
	return list, err
}
