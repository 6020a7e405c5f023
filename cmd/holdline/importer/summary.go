package importer

import (
	"fmt"
	"slices"
	"strings"

	"holdline/daemon/plural"
)

// Summary counts what a plan is about.
type Summary struct {
	Entries int  `json:"entries"` // of clients, that do not start holdline
	Clients int  `json:"clients"` // that have them
	Ours    int  `json:"ours"`    // entries that start holdline already
	Servers int  `json:"servers"` // that the entries stand for; equal ones are one
	Move    int  `json:"move"`    // servers
	Started bool `json:"started"` // those that move were started, and work
	Login   int  `json:"login"`   // servers that need a login
	Stay    int  `json:"stay"`    // servers that stay for another reason
	Fail    int  `json:"fail"`    // those of them that do not start
	Broken  int  `json:"broken"`  // files that cannot be read
}

// summarize sets p.Summary.
func (p *Plan) summarize() {
	s := Summary{Started: p.trials != nil && !p.untried}
	var clients []string
	servers := map[string]*Server{}
	for _, f := range p.Files {
		if f.Broken {
			s.Broken++
		}
		for _, one := range f.Servers {
			if one.Verdict == Ours {
				s.Ours++
				continue
			}
			s.Entries++
			if !slices.Contains(clients, f.Client) {
				clients = append(clients, f.Client)
			}
			key := "moves " + one.As
			if one.Verdict == Stays { // two of one name may be different servers
				key = "stays " + one.Name + "\x00" + one.summary() + "\x00" + one.key
			}
			if servers[key] == nil {
				servers[key] = one
			}
		}
	}
	for _, one := range servers {
		switch {
		case one.Login:
			s.Login++
		case one.Verdict == Moves:
			s.Move++
		default:
			s.Stay++
			if one.fails {
				s.Fail++
			}
		}
	}
	s.Clients, s.Servers = len(clients), len(servers)
	p.Summary = s
}

// String returns the summary in one line.
func (s Summary) String() string {
	if s.Entries == 0 {
		text := "No client has a server of its own"
		if s.Broken > 0 {
			text = "Whether a client has a server of its own is not known: " +
				plural.Count(s.Broken, "file") + " cannot be read"
		}
		if s.Ours > 0 {
			text += fmt.Sprintf("; %s start%s Holdline already", plural.Count(s.Ours, "entry"), s3(s.Ours))
		}
		return text + "."
	}
	verb := "would move"
	if s.Started {
		verb = "start" + s3(s.Move)
	}
	var parts []string
	if s.Move > 0 || s.Login+s.Fail+s.Stay == 0 {
		parts = append(parts, fmt.Sprintf("%d %s", s.Move, verb))
	}
	if s.Login > 0 {
		parts = append(parts, fmt.Sprintf("%d need%s a login", s.Login, s3(s.Login)))
	}
	switch {
	case s.Fail == 1:
		parts = append(parts, "1 does not start")
	case s.Fail > 1:
		parts = append(parts, fmt.Sprintf("%d do not start", s.Fail))
	}
	if n := s.Stay - s.Fail; n > 0 {
		parts = append(parts, fmt.Sprintf("%d stay%s", n, s3(n)))
	}
	where := plural.Count(s.Clients, "client")
	if s.Entries != s.Servers { // equal ones are one server
		where += ", " + plural.Count(s.Entries, "entry")
	}
	return fmt.Sprintf("%s (%s): %s.", plural.Count(s.Servers, "server"), where, strings.Join(parts, ", "))
}

// s3 returns the ending of a verb whose subject is n things.
func s3(n int) string {
	if n == 1 {
		return "s"
	}
	return ""
}
