// Package daemon puts the parts of the daemon together. It fixes the order in which
// they start and stop, and what a reload of the configuration changes. It is the only
// package that knows all parts. This page is the way into the whole program.
//
// # Processes
//
//	agent -- holdline mcp-stdio --+ socket               +-- worker -- a configured MCP server
//	agent -- holdline mcp-stdio --+                      |
//	                              +-- holdline daemon ---+-- worker -- holdline remote -- a remote server
//	holdline status, servers ... -+ (one for each user)  |
//	                                                     +-- worker -- holdline engine NAME -- a consult program
//
// The proxy (package proxy, `holdline mcp-stdio`) is small and outlives the daemon. It
// numbers each line of its client, keeps what is unanswered, finds the next daemon or
// starts it, and says there what is still pending. It is a program of its own,
// holdline-stdio, which `holdline mcp-stdio` becomes (cmd/holdline/pair), and so does
// `holdline worker`: many of both run. What fills the terminal is a third program,
// holdline-top (cmd/holdline/top): the daemon must not carry what draws.
//
// The daemon hosts the servers for all sessions. It may die at any moment: all that the
// next daemon has to know is in the runtime directory, in the state directory, or with
// the workers and the proxies.
//
// A worker (package worker) owns one child process. It numbers the child's output and
// keeps it until the daemon has acknowledged it, makes each write once, and ends the
// child with all that came from it. It never looks into the bytes. A new daemon attaches
// to the workers that live (package supervisor, protocol/workerwire).
//
// # Parts
//
// A package imports only packages of lower layers. layerMap in cmd/e2e/importmap_test.go
// has all packages with their layers, and TestImportMap checks it. What a part needs from
// above or beside it is a small interface or func, which this package fills in.
//
//	place        makes this daemon the only one: locks, generation, socket
//	guests       the sockets of agents in containers and on other machines
//	configfile   the configuration in force; config: what it may say. Parts of config:
//	             glob       patterns of the names of tools
//	             foreign    keys of other clients
//	             resolve    what the start of a server needs of what the file says
//	envfile      files of variables for servers and consults
//	userenv      the environment of the user's login shell
//	supervisor   workers of this daemon: start, attach, write, acknowledge, end
//	calls        the law of recovery, for every call
//	hosted       the hosted servers: processes by scope, and restarts. Its parts:
//	             entry, verdict
//	                        the configured servers, and which of them get no processes
//	             catalog    what sessions see of the servers, and find by name
//	             dispatch   takes a call to a process, and its answer back
//	             upstream   one process of a server: its calls, and which sessions hear what
//	                        it says: logs, and changes to which they have subscribed
//	             question   what a process asks its client
//	             output, records, background
//	                        which output and which records are still needed, and writes
//	                        that belong to no call
//	             group      goroutines that contain their panics
//	             handshake, relist, startup, hang
//	                        how a process is introduced, what it lists when that has changed,
//	                        why it did not start, or hangs
//	             stage      what an instance is doing, and how a server stands by that
//	             serverlog  what processes wrote to stderr, for people
//	             earlier    what earlier daemons have left of processes
//	             sight      which projects see a server
//	             files      what a server offered last, and how it stands, on disk
//	             signin     whether a server's login lets calls be made
//	             detached   the tasks that long calls become, on disk
//	             asklogin   asks the person of a client to log in, by a child of the daemon,
//	                        holdline login, and waits for that
//	             private    calls with a process of their own, as consults are
//	listing      what servers list, its offers and pins
//	launch       how configured servers and consult programs are started
//	consult      the consult tools: their jobs, and the answers that are kept. Its parts:
//	             request    what a call asks for, as a request to an engine
//	             material   puts files and diffs behind a prompt
//	             budget     what consults have cost, and what they may cost
//	             jobdir     the directory of a job, and what became of the job
//	             answer     what is kept of a job, and how it is shown
//	             steps      what a consult does, for people who watch it
//	adapter      the children that are our own: remote (remote servers) and engine
//	             (consult programs); engines is the list of those
//	login        logins of remote servers: their files, and how tokens are renewed;
//	             assertion proves by its key who a client is; flow logs in and out
//	policy       whether and when a call to a hosted server may be made
//	program      programs of other vendors: finds them, and makes their environment
//	clienttable  what is known of each MCP client, a row each
//	command      runs a program and waits for it
//	sandbox      Landlock and bubblewrap, which keep consults and servers from writing
//	tool         the tools that a session sees: own tools, consult tools, hosted tools
//	tasks        the extension by which clients ask later for what a call has come to
//	session      MCP with one client: resume, order of answers
//	commands     answers to the command line
//	listener     the socket, the greeting, a goroutine for each connection
//	rollout      the hand-over to a newer program, by exec in the same process
//	telling      which of the last lines of a program says why it ended
//	networds     why a connection failed, for people
//	spelling     the word that a user has probably meant
//	shellword    words of commands that messages show
//	plural       numbers with nouns and durations, for people
//	trouble      what does not work, in words for people and agents
//	telemetry    counts, health and the log of calls
//	notify       notifications on the desktop
//	events       what has lately happened, for people who watch
//	footprint    memory of the processes
//
// # The walk of a tools/call
//
// Each number is a time that a goroutine has to run: nine goroutines, since 9 is that of
// 3. The hand-offs inside the daemon are from 2 to 3 on the way in, and from 7 over 8 to 9
// on the way out. What cannot be written at once, in 1, 6 and 9, is left to the goroutine
// that writes to that socket:
// proxy.writeDaemon, conn.push, and Outbox.Run. Where much is ready at the same time it
// goes in one write: in 1, 3, 9 and 10. TestStations counts the goroutines.
//
//	 1 proxy     proxy.readClient: a line of the client's stdin goes into the store
//	             (store.addLine). Before the next read proxy.forward writes what is there to
//	             the daemon's socket (proxy.forwardNow)
//	 2 daemon    session.readLines, handleMessage, handleRequest, beginCall: parses, checks,
//	             and hands the call to a goroutine of the pool (session.startWork, Crew.Go)
//	 3 daemon    session.pursue, callTarget, and Dispatcher.Handle: records the call and writes
//	             it to the worker's socket (supervisor.Worker.WriteFunc), with the frames of
//	             other goroutines that are about to write (client.sendFrame)
//	 4 worker    conn.serve, conn.handle, takeLocked: the write is taken
//	 5 worker    worker.writeStdin: the write goes to the child's stdin
//	   child
//	 6 worker    worker.readStdout, worker.took: the child's line is retained, and goes to the
//	             daemon's socket (conn.sendNow)
//	 7 daemon    supervisor.Worker.receive, queueEvent: reads it, and queues it
//	 8 daemon    upstream.Process.run, Process.event, readMessage: finds the call, which is
//	             answered then (Process.answered)
//	 9 daemon    the goroutine of 3 goes on: session.answerLine, session.deliver; Outbox.Put
//	             writes to the proxy's socket at once, with the answers of other goroutines
//	             that are about to answer, unless another one is writing (Outbox.writeNow)
//	10 proxy     proxy.readDaemon, proxy.receive: the answer is gathered with those behind it
//	             (batch.add). Before the next read they go to the client's stdout (batch.flush)
//
// Of a long line (package protocol/bulk says how long) only the name of a file goes from
// process to process, while there is room for files: the proxy puts a request into one in 1,
// the daemon a write in 3, and the worker an output in 6, which in 8 gets a second name as
// the call's answer. In 5 and 10 the kernel copies the file to the server and to the client.
//
// The client's ack follows later: writeAck, session.readLines, Outbox.Acknowledge,
// List.Confirmed; then the record of the call is dropped.
//
// # The law of recovery
//
//  1. The proxy alone knows what is pending. It says so at each resume.
//  2. A call's record is on disk before the child can see the write.
//  3. The worker alone knows which writes its child got: it takes ids 1, 2, 3 … in order.
//  4. A new daemon does not trust an older one's memory: it gathers facts and decides.
//  5. A call that the child did not get is made again.
//  6. A call that the child got, in a process that lives, is waited for.
//  7. A call that the child got, in a process that died, is answered from its file; else
//     it is made again if its contract is convergent; else its answer is outcome_unknown.
//  8. outcome_unknown is only said after the worker's lock is free and its tree is killed.
//  9. Output is acknowledged, and a record dropped, only after the owner has the answer.
//  10. A record that cannot be believed is not taken for none: see [holdline/daemon/calls.Evidence].
//  11. The owner of a call is a session or the job store; nothing else may drop it.
//
// Package calls is that law: [holdline/daemon/calls.Decide] and the states of a call.
//
// # Start and stop
//
// [Run] reads the configuration, takes the place, ends what dead workers left, adopts
// consults and servers, and serves. Each long-running part is an actor of an oklog/run
// group; when one ends, all end. Stopping goes the other way round: the listener with
// its sessions, then consults and servers, which are detached and live on, then the
// supervisor, then the files.
//
// # Locks
//
// Between processes there are three lock files: of the runtime directory and of the
// state directory (package place), and of each worker's directory. Who holds the last
// one is the worker that lives.
//
// Inside the daemon a mutex belongs to one struct, whose comment says what it guards.
// The one that most code meets is that of upstream.Hub: it guards all state of hosted
// servers, and a test of package upstream finds code that uses that without it. No file,
// process or network call is made while a shared mutex is held: protocol/lockcheck fails a
// test that does. A mutex that orders the writes of one file and guards nothing else is not
// shared. Code may log under any mutex: a goroutine of its own writes the log.
//
// # Words
//
//	adopt        take over a worker that an earlier daemon has started
//	attach       be the one connection that may write to a worker
//	acknowledge  let the worker forget output (protocol: ack)
//	aside        a worker's directory moved away, since daemons crashed over it
//	attended     a client waits for the call; the opposite is detached
//	child        the process that a worker owns
//	claim        a client's right to fetch an answer again
//	confirm      the proxy has the answer: the record may go
//	contract     whether a call may run twice: convergent or never_replay
//	convergent   running it again does no harm
//	detach       leave a worker alone; it lives on
//	eject        give up a server that fails too often, until the user reloads it
//	engine       a consult program; adapter/engines lists them
//	doubtful     a record that stands before damaged ones, and its call
//	generation   number of a daemon (on disk: epoch), or of a worker's start
//	hand-over    the daemon executes a newer program; socket and lock stay open
//	instance     the processes of a server for one scope, one after the other
//	line number  what a proxy gives each line of its client, from 1
//	place        runtime directory and state directory of one daemon
//	register     specs of all servers' workers, outside of their directories: known/
//	scope        which sessions share a process: shared, project or session
//	settle       the fate of a write or a call is known and recorded
//	spool        file with a child's output while no daemon is there
//	store id     name of a runtime directory's records; another one means they are lost
//	write        a message to a child, with the number that is its JSON-RPC id
//
// # Where to add
//
// A new package needs its layer: one line of layerMap in cmd/e2e/importmap_test.go.
//
//   - A host tool: a func in package tool that returns a Tool (snapshot.go is an example),
//     its name in the list of tools in daemon.go (build), its name in the map own of
//     tool/names.go, by which config check and config explain know it, and a row in
//     contrib/doc/guide.md. UPDATE=1 go test -run TestToolLists ./cmd/e2e writes what
//     clients get. A daemon that is started on demand has only starter.Variables of the
//     environment of what starts it.
//   - A consult engine: an agent that speaks the Agent Client Protocol needs no code, only
//     a key of consult.agents. Any other one is a package in adapter/engine with the
//     interface engine.Engine (codex is the smaller example), its row in adapter/engines,
//     and its name in builtIn of config/agent.go. UPDATE=1 writes the reference page (see
//     the last item) and what clients get (see above). A run whose Command names no
//     EnforcedBy is refused. The simplest is ByLandlock: Check puts the levels into Info,
//     as sandbox.Landlock allows; Command takes EnforcedBy from there, and puts req.TempDir
//     into Writable, as in acp.go. The command line and the texts for agents follow the
//     row. By hand: its Variable in starter.Variables (TestVariablesAreEnough), the
//     variables of its login in protocol.LoginVariables, its levels in doctor (checkEngines).
//   - An MCP client: a row of the table in clienttable, and its snippet in contrib/clients.
//   - A command of the command line: a func in cmd/holdline/cli (or a package beside it),
//     a line in cli/run.go and a row in contrib/doc/guide.md. If it asks the daemon: a
//     method in protocol/control and a handler in
//     [holdline/daemon/commands.Daemon.Handlers].
//   - An event for `holdline top`: an attribute "event" of the line of the log, by
//     [holdline/daemon/events.New].
//   - A field of the call record: a field of calls.Record; callers of Append fill it in.
//   - A configuration key: a field in config/config.go and a row of the table in
//     config/keys.go; that is all to read, check and default it. TestParse and
//     TestServerDefaults list defaults, too. UPDATE=1 go test -run TestReference
//     ./daemon/config writes the reference page. A part gets the key when it is built
//     (daemon.go; for consults consults.go) and again at a reload (apply in reload.go), or
//     by a func that reads the configuration at each use, as rules does. A key of a server
//     is a field of config.Hosting, which launch (spec) puts into hosted/entry.Server for
//     the part that uses it; `servers get` shows it by itself.
package daemon
