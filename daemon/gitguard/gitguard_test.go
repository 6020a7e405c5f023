package gitguard

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// harmless are settings that name neither a program nor a file that git would run, read or write
// without being told to by a command. As in [rules], a star at the end stands for all that
// follows.
var harmless = strings.Fields(`
add.* advice.* am.* blame.blankboundary blame.coloring blame.date blame.markignoredlines
blame.markunblamablelines blame.showemail blame.showroot apply.* attr.tree author.* bitmappseudomerge.* branch.* bundle.* checkout.* clean.* clone.*
color.* column.* commit.cleanup commit.status commit.verbose commitgraph.* committer.* completion.*
core.abbrev core.alternaterefsprefixes core.autocrlf core.bare core.checkroundtripencoding core.checkstat
core.commentchar core.commentstring core.commitgraph core.compression core.configlocktimeout core.createobject
core.deltabasecachelimit core.eol core.filemode core.filesreflocktimeout core.fsmonitorhookversion core.fsync
core.fsyncmethod core.fsyncobjectfiles core.hidedotfiles core.ignorecase core.ignorestat core.lockfilepid
core.logallrefupdates core.loosecompression core.maxtreedepth core.multipackindex core.notesref
core.packedrefstimeout core.precomposeunicode core.prefersymlinkrefs core.preloadindex core.protecthfs
core.protectntfs core.quotepath core.repositoryformatversion core.restrictinheritedhandles core.safecrlf
core.sharedrepository core.sparsecheckout core.sparsecheckoutcone core.splitindex core.symlinks core.trustctime
core.unsetenvvars core.usereplacerefs core.warnambiguousrefs core.whitespace
credential.interactive credential.protectprotocol credential.sanitizeprompt credential.usehttppath
credential.username credential.<url>.* credentialcache.* credentialstore.*
diff.algorithm diff.colormoved diff.colormovedws diff.context diff.dirstat diff.dstprefix diff.indentheuristic
diff.interhunkcontext diff.mnemonicprefix diff.noprefix diff.relative diff.renamelimit diff.renames
diff.srcprefix diff.statgraphwidth diff.statnamewidth diff.suppressblankempty diff.trustexitcode diff.wordregex
diff.wserrorhighlight diff.<driver>.binary diff.<driver>.trustexitcode diff.<driver>.wordregex
diff.<driver>.xfuncname difftool.guidefault difftool.prompt difftool.trustexitcode extensions.* fastimport.*
feature.* fetch.all fetch.bundlecreationtoken fetch.followremotehead fetch.fsckobjects
fetch.negotiationalgorithm fetch.output fetch.parallel fetch.prune fetch.prunetags fetch.showforcedupdates
fetch.unpacklimit fetch.writecommitgraph
format.attach format.cc format.commitlistformat format.coverfromdescription format.coverletter
format.encodeemailheaders format.filenamemaxlength format.forceinbodyfrom format.from format.headers
format.mboxrd format.noprefix format.notes format.numbered format.pretty format.signoff format.signature
format.subjectprefix format.suffix format.thread format.to format.useautobase fsmonitor.*
gc.aggressivedepth gc.aggressivewindow gc.autodetach gc.autopacklimit gc.bigpackthreshold gc.cruftpacks
gc.logexpiry gc.maxcruftsize gc.packrefs gc.pruneexpire gc.reflogexpire gc.reflogexpireunreachable
gc.repackfilter gc.rerereresolved gc.rerereunresolved gc.worktreepruneexpire gc.writecommitgraph
gc.<pattern>.reflogexpire gc.<pattern>.reflogexpireunreachable
gitcvs.allbinary gitcvs.commitmsgannotation gitcvs.dbdriver gitcvs.dbname gitcvs.dbpass
gitcvs.dbtablenameprefix gitcvs.dbuser gitcvs.enabled gitcvs.usecrlfattr gitweb.* gpg.format gpg.mintrustlevel
grep.* gui.blamehistoryctx gui.commitmsgwidth gui.copyblamethreshold gui.diffcontext gui.displayuntracked
gui.encoding gui.fastcopyblame gui.gcwarning gui.matchtrackingbranch gui.newbranchtemplate
gui.pruneduringfetch gui.trustmtime guitool.<name>.argprompt guitool.<name>.confirm guitool.<name>.needsfile
guitool.<name>.noconsole guitool.<name>.norescan guitool.<name>.prompt guitool.<name>.revprompt
guitool.<name>.revunmerged guitool.<name>.title help.autocorrect help.format hook.<event>.jobs
hook.<friendly-name>.event hook.<friendly-name>.parallel hook.jobs
http.curloptresolve http.delegation http.emptyauth http.extraheader http.followredirects http.keepalive*
http.lowspeedlimit http.lowspeedtime http.maxrequests http.maxretries http.maxretrytime http.minsessions
http.noepsv http.pinnedpubkey http.postbuffer http.proactiveauth http.proxy http.proxyauthmethod
http.proxysslcertpasswordprotected http.retryafter http.schannelcheckrevoke http.schannelusesslcainfo
http.sslbackend http.sslcertpasswordprotected http.sslcerttype http.sslcipherlist http.sslkeytype http.ssltry
http.sslverify http.sslversion http.useragent http.version http.<url>.* i18n.*
imap.authmethod imap.folder imap.host imap.pass imap.port imap.preformattedhtml imap.sslverify imap.user
index.* init.defaultbranch init.defaultobjectformat init.defaultrefformat init.defaultsubmodulepathconfig
instaweb.local instaweb.port interactive.singlekey log.abbrevcommit log.date log.decorate log.diffmerges
log.excludedecoration log.follow log.graphcolors log.graphindent log.initialdecorationset log.mailmap
log.showroot lsrefs.* mailinfo.* mailmap.blob maintenance.autodetach maintenance.commit-graph.*
maintenance.geometric-repack.* maintenance.incremental-repack.* maintenance.loose-objects.*
maintenance.reflog-expire.* maintenance.rerere-gc.* maintenance.strategy maintenance.worktree-prune.*
maintenance.<task>.enabled maintenance.<task>.schedule
merge.autostash merge.branchdesc merge.conflictstyle merge.defaulttoupstream merge.directoryrenames merge.ff
merge.log merge.renamelimit merge.renames merge.renormalize merge.stat merge.suppressdest merge.verbosity
merge.verifysignatures merge.<driver>.name merge.<driver>.recursive mergetool.guidefault
mergetool.hideresolved mergetool.keepbackup mergetool.keeptemporaries mergetool.meld.hasoutput
mergetool.meld.useautomerge mergetool.prompt mergetool.vimdiff.layout mergetool.writetotemp
mergetool.<tool>.hideresolved mergetool.<tool>.trustexitcode mergetool.<variant>.layout notes.* pack.*
pretty.* promisor.* protocol.version pull.* push.* rebase.*
receive.advertiseatomic receive.advertisepushoptions receive.autogc receive.certnonceseed
receive.certnonceslop receive.denycurrentbranch receive.denydeletecurrent receive.denydeletes
receive.denynonfastforwards receive.fsckobjects receive.hiderefs receive.keepalive receive.maxinputsize
receive.shallowupdate receive.unpacklimit receive.updateserverinfo reftable.*
remote.pushdefault remote.<name>.advertisedas remote.<name>.fetch remote.<name>.followremotehead
remote.<name>.mirror remote.<name>.negotiationinclude remote.<name>.negotiationrestrict
remote.<name>.partialclonefilter remote.<name>.promisor remote.<name>.proxy remote.<name>.proxyauthmethod
remote.<name>.prune remote.<name>.prunetags remote.<name>.push remote.<name>.pushurl
remote.<name>.serveroption remote.<name>.skipdefaultupdate remote.<name>.skipfetchall remote.<name>.tagopt
remote.<name>.url remotes.* repack.* replay.* rerere.* revert.* safe.directory
sendemail.aliasfiletype sendemail.annotate sendemail.bcc sendemail.cc sendemail.chainreplyto sendemail.confirm
sendemail.envelopesender sendemail.forbidsendmailvariables sendemail.from sendemail.identity
sendemail.imapsentfolder sendemail.mailmap sendemail.mailmap.blob sendemail.multiedit sendemail.outlookidfix
sendemail.signedoffbycc sendemail.signedoffcc sendemail.smtpbatchsize sendemail.smtpdomain
sendemail.smtpencryption sendemail.smtppass sendemail.smtprelogindelay sendemail.smtpserveroption
sendemail.smtpserverport sendemail.smtpuser sendemail.suppresscc sendemail.suppressfrom sendemail.thread
sendemail.to sendemail.transferencoding sendemail.useimaponly sendemail.validate sendemail.xmailer
sendemail.<identity>.* showbranch.* sideband.* sparse.* splitindex.* ssh.* stash.*
status.aheadbehind status.branch status.comparebranches status.displaycommentprefix status.relativepaths
status.renamelimit status.renames status.short status.showstash status.showuntrackedfiles
submodule.active submodule.alternateerrorstrategy submodule.alternatelocation submodule.fetchjobs
submodule.propagatebranches submodule.<name>.active submodule.<name>.branch
submodule.<name>.fetchrecursesubmodules submodule.<name>.gitdir submodule.<name>.url tag.* tar.umask
trace2.configparams trace2.destinationdebug trace2.envvars trace2.eventbrief trace2.eventnesting
trace2.maxfiles trace2.normalbrief trace2.perfbrief trailer.* transfer.* uploadarchive.* uploadpack.allow*
uploadpack.hiderefs uploadpack.keepalive uploadpackfilter.* url.* user.email user.name user.useconfigonly
versionsort.* worktree.*`)

// elsewhere are settings that the environment cannot overrule. What an included file has is
// listed, and overruled there; the work tree is named by a variable.
var elsewhere = []string{
	"include.path", "includeif.<condition>.path", "core.worktree", "fsck.*", "receive.fsck.*", "fetch.fsck.*",
}

// TestGitKnowsASetting_ItIsOverruledOrHarmless looks through all settings that this git knows. A
// version that has a new one fails the test until somebody has read what the setting does.
func TestGitKnowsASetting_ItIsOverruledOrHarmless(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "git", "help", "--config").Output()
	if err != nil {
		t.Skip("needs git")
	}
	known := 0
	for name := range strings.Lines(string(out)) {
		name = strings.ToLower(strings.TrimSpace(name))
		if !strings.Contains(name, ".") || strings.Contains(name, " ") {
			continue
		}
		known++
		// A rule with the placeholder's section stands for it: "filter.<driver>.clean".
		_, ruled := ruleOf(name)
		named := func(patterns []string) bool {
			return slices.ContainsFunc(patterns, func(pattern string) bool {
				prefix, star := strings.CutSuffix(pattern, "*")
				return name == pattern || star && strings.HasPrefix(name, prefix)
			})
		}
		isFixed := false
		for i := 0; i < len(fixed); i += 2 {
			isFixed = isFixed || strings.EqualFold(fixed[i], name)
		}
		if !ruled && !isFixed && !named(harmless) && !named(elsewhere) {
			t.Errorf("%s: what does it name? put it into rules, or into harmless", name)
		}
	}
	if known < 500 {
		t.Errorf("git lists %d settings only", known)
	}
}

// repository makes a repository with a changed file, and returns a function that runs git in a
// directory of it with more variables.
func repository(t *testing.T) (dir string, git func(dir string, env []string, args ...string) (string, error)) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	git = func(dir string, env []string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if cmd.Env = env; env == nil {
			cmd.Env = bare(base)
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	dir = filepath.Join(base, "project")
	for _, args := range [][]string{{"init", "-q", dir}} {
		if out, err := git(base, nil, args...); err != nil {
			t.Fatal(out, err)
		}
	}
	write(t, dir+"/one", "first\n")
	commit(t, git, dir)
	write(t, dir+"/one", "third\n") // as long as before: git reads it
	return dir, git
}

// bare returns the environment of a program in the home directory base.
func bare(base string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + base, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}
}

func commit(t *testing.T, git func(string, []string, ...string) (string, error), dir string) {
	t.Helper()
	for _, args := range [][]string{{"add", "."}, {"commit", "-q", "-m", "one"}} {
		if out, err := git(dir, nil, args...); err != nil {
			t.Fatal(out, err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o700)); err != nil {
		t.Fatal(err)
	}
}

// TestHostileRepository_NoCommandRunsItsPrograms makes a repository name a program in each setting
// that git has for one, and runs the commands that programs of consults run. The same commands
// without the guard show that the program would run.
func TestHostileRepository_NoCommandRunsItsPrograms(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		config  string // TRAP is the program
		files   map[string]string
		command []string
	}{
		"a clean filter": {
			config: "[filter \"x\"]\nclean = TRAP\n", files: map[string]string{".gitattributes": "* filter=x\n"},
			command: []string{"status"},
		},
		"a process filter": {
			config: "[filter \"x\"]\nprocess = TRAP\nrequired = true\n",
			files:  map[string]string{".gitattributes": "* filter=x\n"}, command: []string{"status"},
		},
		"a filter in an included file": {
			config: "[include]\npath = ../more\n", command: []string{"status"},
			files: map[string]string{".gitattributes": "* filter=x\n", "more": "[filter \"x\"]\nclean = TRAP\n"},
		},
		"a filter with a strange name": {
			config: "[FILTER \"X.y z\"]\nClean = TRAP\n", command: []string{"status"},
			files: map[string]string{".git/info/attributes": "* filter=X.y\n", ".gitattributes": "[attr]q filter=X.y\n"},
		},
		"a monitor of files": {config: "[core]\nfsmonitor = TRAP\n", command: []string{"status"}},
		"a differ":           {config: "[diff]\nexternal = TRAP\n", command: []string{"diff"}},
		"a diff driver": {
			config: "[diff \"x\"]\ncommand = TRAP\n", files: map[string]string{".gitattributes": "* diff=x\n"},
			command: []string{"diff"},
		},
		"a converter": {
			config: "[diff \"x\"]\ntextconv = TRAP\n", files: map[string]string{".gitattributes": "* diff=x\n"},
			command: []string{"diff"},
		},
		"an alias":  {config: "[alias]\nx = !TRAP\n", command: []string{"x"}},
		"an editor": {config: "[core]\neditor = TRAP\n", command: []string{"commit", "--amend"}},
		"hooks": {
			config: "[core]\nhooksPath = traps\n", files: map[string]string{"traps/pre-commit": "TRAP"},
			command: []string{"commit", "--allow-empty", "-m", "x", "-a"},
		},
		"a hook": {
			files:   map[string]string{".git/hooks/pre-commit": "#!/bin/sh\nTRAP\n"},
			command: []string{"commit", "--allow-empty", "-m", "x", "-a"},
		},
		"a format of archives": {
			config: "[tar \"tar.x\"]\ncommand = TRAP\n", command: []string{"archive", "--format=tar.x", "HEAD"},
		},
		"a signature": {
			config:  "[gpg]\nprogram = TRAP\n[log]\nshowSignature = true\n[commit]\ngpgSign = true\n",
			command: []string{"commit", "--allow-empty", "-m", "x", "-a"},
		},
		"an ssh signature": {
			config:  "[gpg]\nformat = ssh\n[gpg \"ssh\"]\nprogram = TRAP\n[user]\nsigningKey = key::ssh-rsa x\n",
			command: []string{"commit", "--allow-empty", "-S", "-m", "x", "-a"},
		},
		"a remote": {
			config: "[remote \"x\"]\nurl = .\nuploadpack = TRAP\n", command: []string{"fetch", "x"},
		},
		"a remote of another kind": {
			config:  "[remote \"x\"]\nurl = \"ext::TRAP\"\n[protocol \"ext\"]\nallow = always\n",
			command: []string{"fetch", "x"},
		},
		"ssh": {
			config: "[remote \"x\"]\nurl = ssh://h/x\n[core]\nsshCommand = TRAP\n", command: []string{"fetch", "x"},
		},
		"a trailer": {
			config:  "[trailer \"x\"]\nkey = X\ncmd = TRAP\n",
			command: []string{"interpret-trailers", "--trailer", "x=y", "/dev/null"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, git := repository(t)
			base := filepath.Dir(dir)
			trap := base + "/trap"
			write(t, trap, "#!/bin/sh\ntouch "+base+"/ran\nexit 1\n")
			for file, text := range tt.files {
				write(t, filepath.Join(dir, file), strings.ReplaceAll(text, "TRAP", trap))
			}
			f, err := os.OpenFile(dir+"/.git/config", os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(strings.ReplaceAll(tt.config, "TRAP", trap))
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			env, err := Guard(t.Context(), bare(base), dir)
			if err != nil {
				t.Fatal(err)
			}
			out, _ := git(dir, env, tt.command...)
			if _, err := os.Stat(base + "/ran"); err == nil {
				t.Errorf("the program ran: %s", out)
			}
			if name == "a filter with a strange name" {
				return // its attribute cannot be written; what counts is that the setting is overruled
			}
			out, _ = git(dir, nil, tt.command...)
			if _, err := os.Stat(base + "/ran"); err != nil {
				t.Errorf("control: without the guard the program does not run: %s", out)
			}
		})
	}
}

// TestSubmoduleIsHostile_StatusDoesNotLookIntoIt checks that git starts none in a submodule: the
// settings would not pass to it.
func TestSubmoduleIsHostile_StatusDoesNotLookIntoIt(t *testing.T) {
	t.Parallel()
	dir, git := repository(t)
	base := filepath.Dir(dir)
	sub := filepath.Join(dir, "sub")
	if out, err := git(dir, nil, "init", "-q", sub); err != nil {
		t.Fatal(out, err)
	}
	write(t, sub+"/two", "first\n")
	commit(t, git, sub)
	write(t, dir+"/.gitmodules", "[submodule \"a.b c\"]\n\tpath = sub\n\turl = ./sub\n\tignore = none\n")
	commit(t, git, dir)
	write(t, base+"/trap", "#!/bin/sh\ntouch "+base+"/ran\nexit 1\n")
	write(t, sub+"/.gitattributes", "* filter=x\n")
	write(t, sub+"/two", "third\n")
	if out, err := git(sub, nil, "config", "filter.x.clean", base+"/trap"); err != nil {
		t.Fatal(out, err)
	}
	env, err := Guard(t.Context(), bare(base), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"status"}, {"status", "--porcelain=2"}, {"diff"}} {
		if out, err := git(dir, env, args...); err != nil {
			t.Errorf("git %v: %s %v", args, out, err)
		}
	}
	if _, err := os.Stat(base + "/ran"); err == nil {
		t.Error("a program of the submodule ran")
	}
	if out, err := git(dir, nil, "status"); err != nil {
		t.Fatal(out, err)
	}
	if _, err := os.Stat(base + "/ran"); err != nil {
		t.Error("control: without the guard the program does not run")
	}
}

// TestUsersOwnSettings_CountInPlaceOfTheRepositorys checks that the user's own programs and files
// stay, also where the repository names others.
func TestUsersOwnSettings_CountInPlaceOfTheRepositorys(t *testing.T) {
	t.Parallel()
	dir, git := repository(t)
	base := filepath.Dir(dir)
	write(t, base+"/.gitconfig", "[core]\nexcludesFile = ~/mine\neditor = ed\n[user]\nname = Ada\n")
	write(t, base+"/mine", "*.log\n")
	write(t, dir+"/x.log", "")
	write(t, base+"/theirs", "*\n")
	if out, err := git(dir, nil, "config", "core.excludesFile", base+"/theirs"); err != nil {
		t.Fatal(out, err)
	}
	write(t, dir+"/new", "")
	env, err := Guard(t.Context(), bare(base), dir)
	if err != nil {
		t.Fatal(err)
	}
	out, err := git(dir, env, "status", "--porcelain")
	if err != nil || !strings.Contains(out, "?? new") || strings.Contains(out, "x.log") {
		t.Errorf("status says %q, %v", out, err)
	}
	if out, _ := git(dir, env, "config", "core.editor"); strings.TrimSpace(out) != "ed" {
		t.Errorf("the user's editor is %q", out)
	}
}

// TestWorkTreeIsElsewhere_StatusListsNoNamesOfIt has a repository that names another directory as
// its work tree.
func TestWorkTreeIsElsewhere_StatusListsNoNamesOfIt(t *testing.T) {
	t.Parallel()
	dir, git := repository(t)
	base := filepath.Dir(dir)
	write(t, base+"/secret/name", "")
	if out, err := git(dir, nil, "config", "core.worktree", base+"/secret"); err != nil {
		t.Fatal(out, err)
	}
	env, err := Guard(t.Context(), bare(base), dir)
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := git(dir, env, "status", "--porcelain"); strings.Contains(out, "name") {
		t.Errorf("status says %q", out)
	}
}

// TestRepositoryCannotBeOverruled_GuardRefuses has too many settings, and a git that is too old.
func TestRepositoryCannotBeOverruled_GuardRefuses(t *testing.T) {
	t.Parallel()
	dir, _ := repository(t)
	base := filepath.Dir(dir)
	write(t, base+"/bin/git", "#!/bin/sh\necho git version 2.30.9\n")
	if env, err := Guard(t.Context(), []string{"PATH=" + base + "/bin", "HOME=" + base}, dir); err == nil {
		t.Errorf("an old git is taken: %q", env)
	}
	var config strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&config, "[filter \"%d\"]\nclean=x\n", i)
	}
	write(t, dir+"/.git/config", config.String())
	if _, err := Guard(t.Context(), bare(base), dir); !errors.Is(err, ErrTooMany) {
		t.Errorf("got %v", err)
	}
}

// TestGitQuotesAFile_FailureDoesNot checks that the text of a failure has nothing of what git says.
func TestGitQuotesAFile_FailureDoesNot(t *testing.T) {
	t.Parallel()
	exit := exec.CommandContext(t.Context(), "sh", "-c", "exit 128").Run()
	for _, said := range []string{
		"key: is not a valid attribute name: /home/a/.kube/config:2\nfatal: unable to read SECRET",
		"SECRET is not a valid attribute name: f:1", "fatal: bad config line 1 in file SECRET", "fatal: SECRET",
	} {
		err := Explain(exit, []byte(said))
		if f, ok := errors.AsType[*FailureError](err); !ok || f.Code != 128 || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q is explained as %v", said, err)
		}
	}
}
