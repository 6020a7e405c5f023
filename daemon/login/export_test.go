package login

import "net/netip"

// Stop is the first half of [Tokens.Close]: it does not wait.
func (t *Tokens) Stop() { t.stop() }

// Nearest is [nearest]. 0 is the public network, and 3 an address that is never asked.
func Nearest(ips ...netip.Addr) int { return int(nearest(ips)) }

// StoreFault is [Tokens.storeFault].
func (t *Tokens) StoreFault(err error) error { return t.storeFault(err) }
