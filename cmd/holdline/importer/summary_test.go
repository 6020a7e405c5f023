package importer

import "testing"

// TestSummary checks that the summary counts only what there is.
func TestSummary(t *testing.T) {
	for want, s := range map[string]Summary{
		"2 servers (1 client): 1 does not start, 1 stays.": {
			Entries: 2, Clients: 1, Servers: 2, Stay: 2, Fail: 1, Started: true,
		},
		"1 server (1 client): 1 would move.":                                            {Entries: 1, Clients: 1, Servers: 1, Move: 1},
		"No client has a server of its own.":                                            {},
		"Whether a client has a server of its own is not known: 1 file cannot be read.": {Broken: 1},
		"Whether a client has a server of its own is not known: 2 files cannot be read; 1 entry starts Holdline already.": {
			Broken: 2, Ours: 1,
		},
	} {
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
