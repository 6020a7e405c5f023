package place

import (
	"crypto/rand"
	"fmt"

	"holdline/daemon/calls"
	"holdline/daemon/statedir"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
	"holdline/protocol/socket"
)

// lossesFile lies beside the id of the records. It says what was lost each time that the id was
// changed.
const lossesFile = "losses.json"

// mostLosses bounds how many earlier ids of the records are known. Who comes back with an older one
// has lost everything.
const mostLosses = 32

// losses is the content of the file.
type losses struct {
	Store string    `json:"store"` // the id that the records have now
	Past  []pastIDs `json:"past"`  // the oldest first
}

// pastIDs is an id that the records had, and what was lost when they got the next one.
type pastIDs struct {
	Store string       `json:"store"`
	Lost  []calls.Loss `json:"lost"`
}

// readLosses reads the file. If it cannot be read, or belongs to another id, no earlier id is known:
// who comes back with one has lost everything.
func (p *Place) readLosses() {
	var l losses
	if err := ownfile.ReadJSON(p.File(lossesFile), &l); err == nil && l.Store == p.store {
		p.past = l.Past
	}
}

// RenewStore gives the runtime directory another id, because all records in it are lost. Clients that
// come back then get outcome_unknown for calls that this daemon has no record of; with the old id
// those calls would be made once more.
func (p *Place) RenewStore() error {
	p.losing.Lock()
	defer p.losing.Unlock()
	p.past = nil
	return p.renew()
}

// Lose gives the runtime directory another id, because records of some workers are lost: see
// [Place.Lost]. When it returns, both are on disk.
func (p *Place) Lose(lost []calls.Loss) error {
	p.losing.Lock()
	defer p.losing.Unlock()
	p.past = append(p.past, pastIDs{p.store, lost})
	p.past = p.past[max(0, len(p.past)-mostLosses):]
	return p.renew()
}

// renew writes another id, and then what is known of the earlier ones. The caller must hold p.losing.
//
// If a file cannot be written for another reason than want of room, the id is this daemon's alone.
func (p *Place) renew() error {
	p.store = rand.Text()
	err := statedir.Overwrite(p.File(socket.StoreFile), []byte(p.store))
	if err == nil {
		err = statedir.WriteFile(p.File(lossesFile), jsonrpc.Encode(losses{p.store, p.past}))
	}
	if err == nil || isFull(err) {
		return err
	}
	p.complain(fmt.Errorf("the store's id cannot be written to %s, so after the next start of the daemon calls "+
		"that run now are answered outcome_unknown: %w", p.File(socket.StoreFile), err))
	return nil
}

// Lost reports whether the record may be lost of a call that a session has made while the records had
// the id since: one of a server, or one of holdline's own tools, whose server is "". why names the file
// that is damaged; it is "" if that is not known. An empty since is that of now.
func (p *Place) Lost(since, server, project, session string) (why string, lost bool) {
	p.losing.Lock()
	defer p.losing.Unlock()
	if since == "" || since == p.store {
		return "", false
	}
	known := false
	for i := range p.past {
		known = known || p.past[i].Store == since
		for j := range p.past[i].Lost {
			if l := &p.past[i].Lost[j]; known && server != "" && l.Concerns(server, project, session) {
				return l.Why, true
			}
		}
	}
	return "", !known
}
