package calls

// The players of the second model: see detached_model_test.go.

// client adds the steps of the client, its proxy, and any party that has the id of the job.
func (r *detachedRules) client(s life, add lifeAdder) {
	if s.client == notAsked && s.up {
		t := s
		t.client, t.conn, t.req = waits, true, true
		add(t, must, "the client asks")
	}
	if s.client == waits && !s.proxyDead {
		t := s
		t.client, t.wantsEnded, t.cancel = hasCancelled, true, s.conn
		add(t, choice, "the client cancels")
	}
	if s.client != notAsked && !s.proxyDead {
		t := s
		t.proxyDead, t.conn, t.wire = true, false, 0
		if s.client == waits {
			t.client = isGone
		}
		t.wantsEnded = t.wantsEnded || s.job != byStore
		add(t, crash, "CLIENT AND PROXY DIE")
	}
	if s.wire != 0 {
		t := s
		t.wire = 0
		if s.client == waits {
			t.got = s.conn
			if t.client, t.value = hasAnswer, s.wire; s.wire == outID {
				t.client, t.value, t.toldID = hasID, 0, true
			}
		}
		add(t, must, "the proxy reads the answer")
	}
	if s.up && !s.conn && !s.proxyDead && s.wire == 0 && s.client != notAsked {
		t := s
		t.conn = true
		if s.client == waits {
			t.req = true
		} else {
			t.confirmed, t.claim = true, r.claim(s.claim, Confirm)
		}
		add(t, must, "the proxy resumes")
	}
	if s.control == 0 && r.limits.control > 0 && s.up && s.job != 0 && s.answer == 0 {
		t := s
		t.control, t.wantsEnded = 1, true
		add(t, choice, "a cancellation by id is asked for")
	}
	if s.up && s.answer != 0 && s.job == byStore && !s.fetched && s.client == hasID {
		t := s
		t.fetched = true
		add(t, choice, "the answer is fetched by its id")
	}
}

// crashes adds the deaths of daemon, worker, engine, client and machine.
func (r *detachedRules) crashes(s life, add lifeAdder) {
	if s.up && s.daemons < r.limits.daemons {
		t := s
		t.daemons++
		t.die()
		add(t, crash, "DAEMON KILLED")
		if s.wire != 0 && s.conn {
			t.wire = 0
			add(t, crash, "DAEMON KILLED in its last line")
		}
	}
	if s.worker == living && s.workers < r.limits.workers {
		t := s
		t.workers++
		t.worker, t.line, t.closed, t.runFrame, t.oldRun, t.cancelFrame = killed, 0, false, 0, 0, 0
		add(t, crash, "WORKER KILLED")
	}
	if s.engine >= idle && s.engine < endedItem && s.engines < r.limits.engines {
		t := s
		t.engines++
		t.engine = endedItem // the program may outlive it for a moment
		add(t, crash, "ENGINE KILLED")
	}
	if s.boots < r.limits.boots && s.job != 0 {
		t := s
		t.boots++
		t.die()
		t.late, t.proxyDead, t.wire, t.wantsEnded = false, true, 0, s.wantsEnded || s.job == byClient
		if s.client == waits {
			t.client = isGone
		}
		if s.control == 1 {
			t.control = 0
		}
		if s.worker == living {
			t.worker = killed
		}
		t.killEngine()
		t.line, t.closed, t.runFrame, t.oldRun, t.cancelFrame = 0, false, 0, 0, 0
		add(t, crash, "POWER CUT")
		if r.broken["SyncStart"] && t.begun && t.outcome == 0 {
			t.begun = false
			add(t, crash, "POWER CUT, the start line was not on disk")
		}
	}
}

// workerSteps adds the steps of the worker. A late worker belongs to a dead daemon.
func (r *detachedRules) workerSteps(s life, add lifeAdder) {
	if s.worker == forked || s.late {
		t := s
		t.late = false
		if s.worker == forked || s.dir == 2 && s.worker == noWorker {
			t.worker, t.state, t.engine = living, true, idle
			add(t, must, "the worker has its lock and starts the engine")
		} else {
			add(t, must, "a late worker finds no spec, or no free lock")
		}
	}
	if s.worker == living {
		for _, old := range []bool{false, true} {
			if epoch := s.runFrame; !old && epoch == 0 || old && s.oldRun == 0 {
				continue
			}
			t := s
			if t.runTwice = s.runTaken; old {
				t.oldRun = 0
			} else {
				t.runFrame = 0
			}
			t.runTaken = true
			add(t, must, "the worker takes the run")
		}
		if s.cancelFrame != 0 && s.runFrame == 0 {
			t := s
			t.cancelFrame, t.cancelTaken = 0, true
			add(t, must, "the worker takes the cancellation")
		}
		if s.engine == endedItem && s.program {
			t := s
			t.program = false
			add(t, must, "the worker kills what the engine left")
		}
		if s.engine == endedItem && !s.program && !s.closed {
			t := s
			t.closed = true
			add(t, must, "the worker says closed")
		}
	}
	if s.worker == killed && s.engine >= idle && s.engine < endedItem {
		t := s
		t.engine = endedItem
		add(t, must, "the engine dies with its worker")
	}
}

// engineSteps adds the steps of the private process and its program.
func (r *detachedRules) engineSteps(s life, add lifeAdder) {
	if s.engine == noEngine || s.engine == endedItem {
		return
	}
	if s.cancelTaken && !s.heard {
		t := s
		t.heard, t.heardFirst = true, s.engine < decided
		add(t, must, "the engine reads the cancellation")
	}
	decide := func(v int8, kind int, name string) {
		t := s
		t.engine, t.end, t.program = decided, v, false
		t.lostControl = v == outDone && s.control == 2 && !s.cancelTaken
		add(t, kind, name)
	}
	start := func(t life) {
		t.starts, t.program = s.starts+1, true
		add(t, must, "the engine starts the program")
	}
	note := func(t life) {
		t.begun = true
		add(t, must, "the engine writes the start line")
	}
	t := s
	switch s.engine {
	case idle:
		if s.runTaken {
			t.engine = asked
			add(t, must, "the engine reads the run")
		}
	case asked:
		if s.heard {
			decide(outStopped, must, "the engine ends before it begins")
			return
		}
		if t.engine = noted; r.broken["StartLine"] {
			start(t)
		} else {
			note(t)
		}
	case noted:
		if s.heard && !s.program {
			decide(outStopped, must, "the engine ends before the program")
			return
		}
		if t.engine = running; r.broken["StartLine"] {
			note(t)
		} else {
			start(t)
		}
	case running:
		if s.heard && !r.broken["Ladder"] {
			decide(outStopped, must, "the engine ends the program")
		}
		if !s.heard || r.broken["CancelWins"] || r.broken["Ladder"] {
			decide(outDone, slow, "the program ends")
		}
	case decided:
		if r.broken["OutcomeFirst"] && s.said == 0 && !s.heard {
			t.line, t.said = s.end, s.end
			add(t, must, "the engine answers")
			return
		}
		t.outcome, t.engine = s.end, filed
		add(t, must, "the engine writes outcome.json")
		if s.full < r.limits.full {
			t := s
			t.full++
			t.engine = filed
			add(t, crash, "DISK FULL at outcome.json")
		}
	case filed:
		if t.engine = endedItem; s.heard && s.outcome != 0 || s.said != 0 {
			add(t, must, "the engine exits")
			return
		}
		t.engine, t.said = replied, s.end
		if s.worker == living {
			t.line = s.end
		}
		add(t, must, "the engine answers")
	case replied:
		t.engine = endedItem
		add(t, must, "the engine exits")
	}
}
