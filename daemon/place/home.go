package place

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
	"holdline/protocol/socket"
)

// checkHome returns an error, which wraps [socket.ErrOtherHome], if what runs in the runtime directory
// belongs to another home: its daemon was killed, and has left workers there. They wait for the next daemon
// of their home, and this one must neither adopt nor end them. What has ended there is of no use to anybody.
func (p *Place) checkHome(o Options) error {
	if p.socket != o.Paths.Start() {
		return nil // the socket was handed over: the service manager has decided whose it is
	}
	err := o.Paths.CheckHome()
	if err == nil {
		return nil
	}
	entries, _ := os.ReadDir(p.File(WorkersDir)) // there is no such directory before the first worker
	for _, e := range entries {
		if held, err2 := statedir.Held(filepath.Join(p.File(WorkersDir), e.Name(), process.FileLock)); err2 == nil && held {
			return fmt.Errorf("%w; its daemon does not run, and its servers or consults do", err)
		}
	}
	return nil
}

// takeHome notes in the runtime directory which home's it is. It says in the log if the daemon before
// has served elsewhere: what that one has left there is lost.
func (p *Place) takeHome(ctx context.Context, o Options) error {
	if at, err := o.Paths.Earlier(); err != nil && o.Handed == nil && at != p.socket {
		o.Log.WarnContext(ctx, "this daemon cannot go on where the one before was: calls that were pending there are lost",
			"why", err, "socket", p.socket)
	}
	text := o.Paths.HomeText()
	if old, err := ownfile.Read(p.File(socket.HomeFile), ownfile.MaxNumber); err == nil && string(old) == string(text) {
		return nil // a full file system does not matter then
	}
	err := p.retryInRoom(ctx, o, func() error { return statedir.WriteFile(p.File(socket.HomeFile), text) })
	if err != nil && !isFull(err) {
		p.complain(fmt.Errorf("the note whose runtime directory this is cannot be written, so the next daemon may "+
			"listen elsewhere: %w", err))
		return nil
	}
	return err
}
