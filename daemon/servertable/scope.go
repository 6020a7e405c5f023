package servertable

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/leaf"
)

// Row is what is known of one package of npm.
type Row struct {
	Package string
	Version string // that was tried
	Tried   string // the day of that, as 2006-01-02

	// Reads is what it reads of its working directory; "" is nothing, and it does not ask where it runs.
	Reads string
	Roots bool // it asks its client for the roots
	Files bool // its tools take names of files, or of directories, on this machine
	Asks  bool // it asks its client for a text of a model, or for something of its user
	// Keeps is what it keeps of its client in memory, and shows to the next one; "" is nothing.
	Keeps string

	// Args and Env are the arguments and the variables with which it was tried. An argument that ends in = stands for
	// every value. A server with others is not shared.
	Args, Env []string
}

// Scope returns which agents may share a process of the server.
func (r *Row) Scope() string {
	switch {
	case r.Keeps != "" || r.Asks:
		return config.ScopeSession
	case r.Reads != "" || r.Roots || r.Files:
		return config.ScopeProject
	}
	return config.ScopeShared
}

// seen says in words what decides the scope.
func (r *Row) seen() string {
	switch {
	case r.Keeps != "":
		return "keeps " + r.Keeps + " in memory"
	case r.Asks:
		return "asks its client questions"
	case r.Roots:
		return "asks its client for its directories"
	case r.Reads != "":
		return "reads " + r.Reads
	case r.Files:
		return "has tools that take names of files"
	}
	return "neither depends on its directory nor keeps anything of its client"
}

// Find returns the row of a package.
func Find(name string) (Row, bool) {
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Package == name })
	if i < 0 {
		return Row{}, false
	}
	return rows[i], true
}

// Rows returns the table, by the names of the packages.
func Rows() []Row { return slices.Clone(rows) }

// Entry is a server as its process is started: its variables are expanded. Values of variables that are not known are
// as the configuration has them.
type Entry struct {
	Command string
	Args    []string
	Env     map[string]string // what the entry adds
	Cwd     string            // "" if the entry names none
	URL     string            // "" for a program
	Version string            // that its launcher has started; "" if that is not known
}

// Choose returns the scope for a server, and why, for people. What is not known to be safe is not shared: a server
// that is not in the table, or is started otherwise than it was tried, has a process for each project. A server with an
// address is shared if it is on another machine. The reason shows no argument, which may be secret: it names a package only
// if the table does.
func Choose(e Entry) (scope, why string) {
	if e.URL != "" {
		return chooseByAddress(e.URL)
	}
	spec, args, ok := leaf.Package(e.Command, e.Args)
	if !ok {
		return config.ScopeProject, "Holdline does not know it: its command names no package of npm"
	}
	name, version := splitSpec(spec)
	r, ok := Find(name)
	if !ok {
		return config.ScopeProject, "Holdline does not know it: its package is not in the table of servers"
	}
	tried := fmt.Sprintf("%s %s, tried on %s", name, r.Version, r.Tried)
	if strings.ContainsAny(version, ":/") { // a file, an address, a repository or another package
		return config.ScopeProject, "Holdline does not know where its package is from: it knows " + tried
	}
	if !likeTried(cmp.Or(e.Version, version), r.Version) {
		return config.ScopeProject, "Holdline does not know this version of it: it knows " + tried
	}
	if scope = r.Scope(); scope == config.ScopeShared {
		if differs := r.differs(e, args); differs != "" {
			return config.ScopeProject, differs + ": Holdline knows " + tried
		}
	}
	why = "it " + r.seen() + " (" + tried + ")"
	if e.Version == "" && (version == "" || version == "latest") {
		why += "; which version starts was not looked at"
	}
	return scope, why
}

// chooseByAddress returns the scope for a server with an address, and why. One on this machine, such as that of a
// browser or an editor, may keep state of its client or work on files; what is elsewhere serves many clients.
func chooseByAddress(address string) (scope, why string) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "" || strings.Contains(u.Hostname(), "$"):
		return config.ScopeProject, "its address is not known yet"
	case isLocal(u.Hostname()):
		return config.ScopeProject, "its address is on this machine"
	}
	return config.ScopeShared, "it is reached by its address"
}

// isLocal reports whether a host is this machine, by its name or its address.
func isLocal(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.Unmap().IsLoopback() || ip.Unmap().IsUnspecified())
}

// PackageOf returns the name of the package of npm that an entry starts, or "".
func PackageOf(e Entry) string {
	spec, _, _ := leaf.Package(e.Command, e.Args)
	name, _ := splitSpec(spec)
	return name
}

// differs says in what an entry differs from what was tried; "" if it does not. It shows no value.
func (r *Row) differs(e Entry, args []string) string {
	if e.Cwd != "" {
		return "it has a directory of its own"
	}
	for i, arg := range args {
		if !slices.ContainsFunc(r.Args, func(tried string) bool {
			return arg == tried || strings.HasSuffix(tried, "=") && strings.HasPrefix(arg, tried)
		}) {
			return fmt.Sprintf("its argument %d was not tried", i+1)
		}
	}
	names := make([]string, 0, len(e.Env))
	for name := range e.Env {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case !slices.Contains(r.Env, name) && !harmless.Has(name):
			return "its variable " + name + " was not tried"
		case namesFile(name) && !filepath.IsAbs(e.Env[name]): // nobody expands ~ there
			return "its variable " + name + " is not an absolute path"
		}
	}
	return ""
}

// harmless are variables that change neither what a server reads nor what it keeps.
var harmless = command.NewNames(
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "LANG", "LC_ALL", "TZ", "NO_COLOR", "LOG_LEVEL", "DEBUG",
)

// namesFile reports whether a variable names a file or a directory, by its name.
func namesFile(name string) bool {
	last := name[strings.LastIndexByte(name, '_')+1:]
	return slices.Contains([]string{"PATH", "FILE", "DIR", "DIRECTORY", "ROOT", "FOLDER", "CERTS"}, strings.ToUpper(last))
}

// Title returns the words for a scope in a plan.
func Title(scope string) string {
	switch cmp.Or(scope, config.ScopeProject) {
	case config.ScopeShared:
		return "shared by all projects"
	case config.ScopeSession:
		return "one for each agent"
	}
	return "one for each project"
}
