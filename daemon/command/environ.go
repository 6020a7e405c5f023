package command

import (
	"maps"
	"slices"
	"strings"
)

// Names is a set of names of variables.
type Names struct {
	names    []string
	prefixes []string // all names that begin so are in the set, too
}

// NewNames returns the set of these names. A name that ends in * stands for all that
// begin so.
func NewNames(names ...string) Names {
	var n Names
	for _, name := range names {
		if prefix, ok := strings.CutSuffix(name, "*"); ok {
			n.prefixes = append(n.prefixes, prefix)
		} else {
			n.names = append(n.names, name)
		}
	}
	return n
}

// Has reports whether a name is in the set.
func (n Names) Has(name string) bool {
	return slices.Contains(n.names, name) ||
		slices.ContainsFunc(n.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

var (
	// Core are the variables of any session of a user.
	Core = NewNames("HOME", "LOGNAME", "USER", "PATH", "SHELL", "LANG", "TERM", "TMPDIR", "TZ", "LC_*", "XDG_*")
	// Network are the variables that say how to reach the network: proxies and
	// certificates.
	Network = NewNames(
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
	)
	// Selecting are variables by which programs choose what they work on: a cluster, an account, a
	// registry, an installation. Without one a server works, silently, on something else. Names of
	// secrets are such variables, too; package redact knows those.
	Selecting = NewNames(
		"KUBECONFIG", "KUBE_*", "HELM_*", "TALOSCONFIG", "AWS_*", "GOOGLE_*", "GCLOUD_*", "CLOUDSDK_*", "GCP_*",
		"AZURE_*", "ARM_*", "DIGITALOCEAN_*", "OCI_*", "CLOUDFLARE_*", "VAULT_*", "CONSUL_*", "NOMAD_*", "TF_*", "PULUMI_*",
		"DOCKER_*", "CONTAINER_HOST", "COMPOSE_*", "BUILDKIT_*",
		"DATABASE_URL", "REDIS_URL", "MONGODB_URI", "PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGSERVICE", "PGSERVICEFILE",
		"PGPASSFILE", "MYSQL_*", "GITHUB_*", "GH_*", "GITLAB_*", "GIT_*", "JIRA_*", "ATLASSIAN_*", "SENTRY_*", "SLACK_*",
		"NPM_CONFIG_*", "npm_config_*", "YARN_*", "PNPM_HOME", "BUN_INSTALL", "DENO_*", "NODE_ENV", "NODE_OPTIONS",
		"NODE_PATH", "NODE_TLS_REJECT_UNAUTHORIZED", "NVM_DIR", "VOLTA_HOME", "FNM_*", "PIP_*", "UV_*", "PIPX_*", "POETRY_*",
		"VIRTUAL_ENV", "CONDA_*", "PYENV_*", "PYTHONPATH", "PYTHONHOME", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_HOME", "MAVEN_*",
		"M2_HOME", "GRADLE_*", "ANDROID_*", "GOPATH", "GOROOT", "GOPROXY", "GOPRIVATE", "GOFLAGS", "CARGO_*", "RUSTUP_*",
		"GEM_*", "RBENV_*", "BUNDLE_*", "DOTNET_*", "NUGET_*", "ASDF_*", "MISE_*", "HF_*", "OLLAMA_*", "CHROME_PATH",
		"PLAYWRIGHT_*", "PUPPETEER_*", "GIT_SSH_COMMAND", "OPENAI_*", "ANTHROPIC_*", "GEMINI_*",
	)
	// Passing are variables of a terminal, a display, a shell or a login: they say where a program was
	// started, and nothing that a server works on depends on them.
	Passing = NewNames(
		"_", "PWD", "OLDPWD", "SHLVL", "TERM*", "COLORTERM", "COLORFGBG", "LINES", "COLUMNS", "LS_COLORS", "LSCOLORS",
		"CLICOLOR*", "NO_COLOR", "FORCE_COLOR", "PS1", "PS2", "PROMPT*", "HIST*", "PAGER", "LESS*", "MANPATH", "MANPAGER",
		"INFOPATH", "EDITOR", "VISUAL", "BROWSER", "MAIL", "HOSTNAME", "HOSTTYPE", "HOST", "MACHTYPE", "OSTYPE", "UID", "EUID",
		"GROUPS", "DISPLAY", "WAYLAND_*", "XAUTHORITY", "SESSION_MANAGER", "DESKTOP_*", "GNOME_*", "KDE_*", "GTK_*", "QT_*",
		"GDM*", "GDK_*", "SSH_*", "GPG_*", "DBUS_*", "TMUX*", "STY", "WINDOW*", "ITERM_*", "KITTY_*", "ALACRITTY_*",
		"WEZTERM_*", "GHOSTTY_*", "VTE_*", "KONSOLE_*", "VSCODE_*", "ELECTRON_*", "WSL*", "WT_*", "Apple_*", "__CF*",
		"COMMAND_MODE", "SECURITYSESSIONID", "LaunchInstanceID", "XPC_*", "STARSHIP_*", "ZSH*", "BASH*", "FISH*", "FPATH",
		"ENV", "OMP_*", "DIRENV_*", "LOGNAME", "USERNAME", "SUDO_*", "DEBIAN_FRONTEND", "JOURNAL_STREAM", "INVOCATION_ID",
		"SYSTEMD_*", "MANAGERPID", "MEMORY_PRESSURE_*", "NOTIFY_SOCKET", "LISTEN_*", "HOLDLINE_*", "MCP_*", "CLAUDE*", "CODEX_*",
		"OPENCODE_*", "CURSOR_*", "GIT_ASKPASS", "GIT_EDITOR", "GIT_PAGER", "GO*CACHE", "GOCOVERDIR", "GORACE",
	)
	// Loaders make a program load foreign code.
	Loaders = NewNames("LD_PRELOAD", "LD_AUDIT", "DYLD_*")
	// Agents are variables of an agent's session. They make a program believe that it
	// runs inside that agent.
	Agents = NewNames(
		"CLAUDECODE", "AI_AGENT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_CHILD_NOTES_DIR",
		"CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS", "CLAUDE_CODE_MESSAGING_*",
	)
)

// Compose returns an environment, sorted, each name once: the variables of base that
// inherits accepts, and over them those of set. Variables that never accepts are in
// neither, and PATH has only the directories of [SearchDirs]: the program runs in a
// project, whose files must not become programs that it starts. Without any directory
// there is no PATH, since an empty one means the working directory.
func Compose(base []string, inherits func(name string) bool, set []string, never func(name string) bool) []string {
	out := map[string]string{}
	put := func(environ []string, accept func(name string) bool) {
		for _, kv := range environ {
			name, value, ok := strings.Cut(kv, "=")
			if !ok || name == "" || never(name) || !accept(name) || strings.Contains(value, "\x00") {
				continue
			}
			out[name] = value
		}
	}
	put(base, inherits)
	put(set, func(string) bool { return true })
	if path, ok := out["PATH"]; ok {
		if out["PATH"] = SafePath(path); out["PATH"] == "" {
			delete(out, "PATH")
		}
	}
	return List(out)
}

// List returns variables as a sorted environment.
func List(variables map[string]string) []string {
	env := make([]string, 0, len(variables))
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		env = append(env, name+"="+variables[name])
	}
	return env
}

// Variable returns the value of a variable in an environment: that of its last
// entry, or "" if there is none.
func Variable(environ []string, name string) string {
	for _, kv := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}
