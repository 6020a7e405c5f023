// Package calls is the law of recovery: what becomes of a call when the daemon,
// the worker, the client or the machine dies. It knows nothing of MCP, servers or
// consults.
//
// The law:
//
//  1. The client's proxy alone knows what is pending. A resume brings that list,
//     and the daemon believes it ([Owner], [Resumed]).
//
//  2. The worker alone knows which writes its child got. It takes write ids 1, 2, 3 …
//     in order, so the highest id names them all.
//
//  3. Nothing is forgotten before the owner has it. Then the record goes first,
//     the worker's output second, the directory last.
//
//  4. A [Record] is on disk before the child can see the write.
//
//  5. What became of a call follows from facts that a new daemon can find out
//     ([Facts]), by one pure function ([Decide]). No daemon trusts its memory.
//
//  6. A call that may have had its effect is not made again, unless its contract
//     lets it run twice. If that cannot be known, the answer says so ([Unknown]).
//
//  7. "Unknown" is only said of the dead: after the worker's lock is free and what
//     it left running was killed.
//
//  8. Output is acknowledged up to the first line that still matters ([AckBefore]).
//
//  9. The directory of a dead worker stays while a call in it is unconfirmed
//     ([MayRemoveDir]).
//
//  10. A detached call belongs to the job store, which records that on disk before any
//     client learns of it. No session's end touches it ([Claim]). Its record goes when
//     the store has the answer and the client has the id, whichever comes last.
//
//  11. "No record" and "the record cannot be read" are two things ([Evidence], [Load]). Each line of a
//     journal has a number and a checksum, and the worker keeps the last write that it has taken in
//     a file of its own. A call whose record may be lost is made only if it may run twice.
//
//  12. What is damaged stays known until no client can come back that was there before ([Loss]). A
//     damaged journal takes no line any more, and its worker no write.
//
// The table, for calls of a process that may be started again:
//
//	pending  recorded  taken  worker  what the new daemon does
//	no       –         –      –       confirmed: drop the record; if in flight without an answer, cancel it
//	yes      no        –      –       not made: dispatch
//	yes      yes       no     alive   the record is void, not made: dispatch
//	yes      yes       yes    alive   in flight: wait for the answer, retained or to come
//	yes      yes       ?      dead    answer in a file: give it; else convergent: once more; else unknown
//
// A call of a private process is a job: its directory is all that is known of it. What a daemon that starts does
// about such a directory follows from its files by [DecideJob]; a job whose process was certainly told nothing is
// begun again.
//
// A [Call] has three states, each a type with a table of its own: [Phase] says
// where it stands with its process, [Claim] which owner wants its answer, [Keeping] where
// the answer is kept. One method changes each: [Call.Apply], [Call.Demand], and
// [Call.BeginWriting] with [Call.Written].
//
// A call is made so: its holder takes it to a worker, which appends a record to
// its [Journal] and sends the write (Sent). The answer comes (Reply), and is
// handed to the request that waits. If the proxy has not confirmed it after
// [SpoolAfter] it is written to a file. The confirmation settles the call
// (Settle): its record is forgotten, and the next compaction of the journal drops
// it.
//
// Three exhaustive models in the tests drive these types through every order of
// steps and deaths: one of two calls over several workers, attended or detached on the
// way, one of a detached call in a private process, and one of what a server asks during
// calls. A fourth damages each record of a job at each point of its life.
package calls
