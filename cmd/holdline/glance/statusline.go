package glance

import (
	"fmt"
	"strings"

	"holdline/daemon/plural"
	"holdline/daemon/trouble"
	"holdline/protocol/control"
)

// Statusline returns the status for a prompt: "3 agents · 7/7 ok · 1 consult · $0.42". Servers
// that a user has stopped do not count. Consults and costs are left out if there are none.
func Statusline(s *control.StatusAnswer) string {
	all, ok := 0, 0
	for i := range s.Servers {
		one := &s.Servers[i]
		if one.State == "stopped" {
			continue
		}
		all++
		if !trouble.In(one) {
			ok++
		}
	}
	parts := []string{plural.Count(len(Agents(s.Sessions)), "agent"), fmt.Sprintf("%d/%d ok", ok, all)}
	if n := s.Consults.Running + s.Consults.Queued; n > 0 {
		parts = append(parts, plural.Count(n, "consult"))
	}
	cost := 0.0
	for _, spent := range s.Consults.Today {
		cost += spent.CostUSD
	}
	if cost > 0 {
		parts = append(parts, plural.Dollars(cost))
	}
	return strings.Join(parts, " · ")
}
