package config

import (
	"fmt"
	"slices"
	"strings"

	"holdline/daemon/redact"
)

// Agent is a program that speaks the Agent Client Protocol: the engine acp:NAME of consults.
type Agent struct {
	Command  string                   `json:"command"`
	Args     []string                 `json:"args"`
	Env      map[string]redact.Secret `json:"env"`
	Login    []string                 `json:"login"`    // files
	Writable []string                 `json:"writable"` // directories
	Mode     string                   `json:"mode"`     // "" for the agent's own
	Auth     string                   `json:"auth"`     // "" for none
	FS       bool                     `json:"fs"`
	Model    string                   `json:"model"` // "" leaves it to the agent
}

// AgentPrefix stands before the name of an agent where engines are named.
const AgentPrefix = "acp:"

// maxAgentName bounds the name of an agent, as the schema of the tool consult does.
const maxAgentName = 32

// Agent returns the agent that the name of an engine stands for; false if it stands for none.
func (c *Consult) Agent(engine string) (a Agent, ok bool) {
	if name, isAgent := strings.CutPrefix(engine, AgentPrefix); isAgent {
		a, ok = c.Agents[name]
	}
	return a, ok
}

// builtIn are the engines that need no configuration. Package engines has a row for each.
var builtIn = []string{"claude", "codex"}

// agents checks the agents, and every key that names an engine.
func (d *decoder) agents(c *Consult) {
	engines := slices.Clone(builtIn)
	for _, name := range sorted(c.Agents) {
		a, at := c.Agents[name], "consult.agents."+name
		word := func(r rune) bool { return r != '.' && serverName(r) }
		if len(name) > maxAgentName {
			d.wrongKey(at, "the name wants 1 to %d of A-Z a-z 0-9 _ -", maxAgentName)
		} else {
			d.name(at, name, word, "of A-Z a-z 0-9 _ -")
		}
		if a.Command == "" {
			d.wrong(at, "wants a command")
		}
		env := map[string]Variable{}
		for variable, text := range a.Env {
			env[variable] = Variable{Text: text}
		}
		d.serverEnv(at+".env", env, nil)
		engines = append(engines, AgentPrefix+name)
	}
	check := func(at, engine string) {
		switch {
		case slices.Contains(engines, engine):
		case strings.HasPrefix(engine, AgentPrefix):
			d.wrong(at, "consult.agents has no such agent; there are %s", strings.Join(engines, ", "))
		default:
			d.wrong(at, "wants one of %s", strings.Join(engines, ", "))
		}
	}
	check("consult.engine", c.Engine)
	for _, name := range sorted(c.Allow) {
		for i, engine := range c.Allow[name].Engines {
			check(fmt.Sprintf("consult.allow.%s.engines[%d]", name, i), engine)
		}
	}
}
