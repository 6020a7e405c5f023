package gitguard

import (
	"slices"
	"strings"
)

// fixed overrules settings whatever the configuration says: names and values by turns. They could
// run a program by themselves, write something, reach the network, or take much memory. Git looks
// into no submodule: it does so with another process, to which these settings do not pass.
var fixed = []string{
	"core.fsmonitor", "false", "core.untrackedCache", "false", "core.hooksPath", "/dev/null", "core.pager", "cat",
	"diff.submodule", "short", "diff.ignoreSubmodules", "all", "status.submoduleSummary", "false",
	"submodule.recurse", "false", "fetch.recurseSubmodules", "false", "protocol.allow", "never",
	"diff.autoRefreshIndex", "false", "safe.bareRepository", "explicit", "log.showSignature", "false",
	"commit.gpgSign", "false", "tag.gpgSign", "false", "gc.auto", "0", "maintenance.auto", "false",
	"core.bigFileThreshold", "32m", "core.packedGitWindowSize", "32m", "core.packedGitLimit", "256m",
}

// variables are those that every git of a consult gets beside its settings.
var variables = []string{
	"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none",
	"GIT_PAGER=cat",
}

// A rule names settings that name a program or a file, and the value that overrules them. A star
// stands for any name between the first dot and the last one, and at the end for all that follows.
type rule struct {
	pattern string
	value   string
	// always says that the user's own setting is overruled, too. Otherwise it counts in place of
	// the repository's.
	always bool
}

// Values that overrule.
const (
	fails   = "false" // a program that fails, wherever a system has it
	noFile  = "/dev/null"
	copies  = "cat" // a program that changes nothing
	nothing = ""
)

// rules are in lower case but for stars, as git prints the names of settings.
var rules = []rule{
	// Programs.
	{"filter.*.clean", nothing, true},
	{"filter.*.smudge", nothing, true},
	{"filter.*.process", nothing, true},
	{"filter.*.required", "false", true}, // it would make the absence of a filter an error
	{"alias.*", nothing, false},
	{"browser.*.cmd", fails, false},
	{"browser.*.path", fails, false},
	{"core.alternaterefscommand", "true", false},
	{"core.askpass", fails, false},
	{"core.editor", fails, false},
	{"core.gitproxy", "none", false},
	{"core.sshcommand", fails, false},
	{"credential.helper", nothing, true},
	{"credential.*.helper", nothing, true},
	{"diff.external", fails, false},
	{"diff.tool", nothing, false},
	{"diff.guitool", nothing, false},
	{"diff.*.command", fails, false},
	{"diff.*.textconv", copies, false},
	{"diff.*.cachetextconv", "false", true}, // it writes notes
	{"difftool.*.cmd", fails, false},
	{"difftool.*.path", fails, false},
	{"gc.recentobjectshook", fails, false},
	{"gpg.program", fails, false},
	{"gpg.*.program", fails, false},
	{"gpg.ssh.defaultkeycommand", fails, false},
	{"guitool.*.cmd", fails, false},
	{"help.browser", nothing, false},
	{"hook.*.command", fails, true},
	{"hook.*.enabled", "false", true},
	{"imap.tunnel", fails, false},
	{"instaweb.browser", fails, false},
	{"instaweb.httpd", fails, false},
	{"instaweb.modulepath", noFile, false},
	{"interactive.difffilter", copies, false},
	{"man.*.cmd", fails, false},
	{"man.*.path", fails, false},
	{"man.viewer", nothing, false},
	{"merge.*.driver", fails, false},
	{"merge.tool", nothing, false},
	{"merge.guitool", nothing, false},
	{"mergetool.*.cmd", fails, false},
	{"mergetool.*.path", fails, false},
	{"pager.*", "false", false},
	{"protocol.*.allow", "never", true},
	{"receive.procreceiverefs", nothing, false},
	{"remote.*.receivepack", fails, false},
	{"remote.*.uploadpack", fails, false},
	{"remote.*.vcs", fails, false},
	{"sendemail.cccmd", fails, false},
	{"sendemail.*.cccmd", fails, false},
	{"sendemail.headercmd", fails, false},
	{"sendemail.*.headercmd", fails, false},
	{"sendemail.sendmailcmd", fails, false},
	{"sendemail.*.sendmailcmd", fails, false},
	{"sendemail.smtpserver", fails, false},
	{"sendemail.*.smtpserver", fails, false},
	{"sendemail.tocmd", fails, false},
	{"sendemail.*.tocmd", fails, false},
	{"sequence.editor", fails, false},
	{"submodule.*.update", "none", true},
	{"submodule.*.ignore", "all", true},
	{"tar.*.command", fails, false},
	{"trailer.*.cmd", fails, false},
	{"trailer.*.command", fails, false},
	{"uploadpack.packobjectshook", fails, false},
	{"web.browser", nothing, false},
	// Files that git reads, or writes.
	{"blame.ignorerevsfile", nothing, true}, // an empty name takes back those before
	{"commit.template", noFile, false},
	{"core.attributesfile", noFile, false},
	{"core.excludesfile", noFile, false},
	{"diff.orderfile", noFile, false},
	{"fetch.bundleuri", nothing, true},
	{"fetch.fsck.skiplist", noFile, false},
	{"format.signaturefile", noFile, false},
	{"format.outputdirectory", noFile, false},
	{"fsck.skiplist", noFile, false},
	{"gc.repackfilterto", noFile, false},
	{"gitcvs.logfile", noFile, false},
	{"gpg.ssh.allowedsignersfile", noFile, false},
	{"gpg.ssh.revocationfile", noFile, false},
	{"gui.spellingdictionary", nothing, false},
	{"help.htmlpath", noFile, false},
	{"http.cookiefile", noFile, false},
	{"http.*.cookiefile", noFile, false},
	{"http.proxysslcainfo", noFile, false},
	{"http.*.proxysslcainfo", noFile, false},
	{"http.proxysslcert", noFile, false},
	{"http.*.proxysslcert", noFile, false},
	{"http.proxysslkey", noFile, false},
	{"http.*.proxysslkey", noFile, false},
	{"http.savecookies", "false", false},
	{"http.*.savecookies", "false", false},
	{"http.sslcainfo", noFile, false},
	{"http.*.sslcainfo", noFile, false},
	{"http.sslcapath", noFile, false},
	{"http.*.sslcapath", noFile, false},
	{"http.sslcert", noFile, false},
	{"http.*.sslcert", noFile, false},
	{"http.sslkey", noFile, false},
	{"http.*.sslkey", noFile, false},
	{"init.templatedir", nothing, false},
	{"mailmap.file", noFile, false},
	{"receive.fsck.skiplist", noFile, false},
	{"sendemail.aliasesfile", noFile, false},
	{"sendemail.*.aliasesfile", noFile, false},
	{"sendemail.mailmap.file", noFile, false},
	{"sendemail.smtpsslcertpath", noFile, false},
	{"sendemail.*.smtpsslcertpath", noFile, false},
	{"sendemail.smtpsslclientcert", noFile, false},
	{"sendemail.*.smtpsslclientcert", noFile, false},
	{"sendemail.smtpsslclientkey", noFile, false},
	{"sendemail.*.smtpsslclientkey", noFile, false},
	{"trace2.eventtarget", "false", false},
	{"trace2.normaltarget", "false", false},
	{"trace2.perftarget", "false", false},
	{"user.signingkey", nothing, false},
}

// matches reports whether a pattern of a [rule] stands for the setting name.
func matches(pattern, name string) bool {
	section, variable, ok := strings.Cut(pattern, "*")
	if !ok {
		return name == pattern
	}
	return len(name) > len(section)+len(variable) && strings.HasPrefix(name, section) && strings.HasSuffix(name, variable)
}

// ruleOf returns the rule for a setting; false if it may stand as it is.
func ruleOf(name string) (rule, bool) {
	i := slices.IndexFunc(rules, func(r rule) bool { return matches(r.pattern, name) })
	if i < 0 {
		return rule{}, false
	}
	return rules[i], true
}
