package acp

import (
	"encoding/json"
	"strings"
)

// protocolVersion is the one that this package speaks. Version 2 is a draft.
const protocolVersion = 1

// Methods that agents answer.
const (
	methodInitialize   = "initialize"
	methodAuthenticate = "authenticate"
	methodNew          = "session/new"
	methodLoad         = "session/load"
	methodResume       = "session/resume"
	methodOption       = "session/set_config_option"
	methodMode         = "session/set_mode"
	methodModel        = "session/set_model" // of agents whose models are no option
	methodPrompt       = "session/prompt"
	methodClose        = "session/close"
	noteCancel         = "session/cancel"
)

// What agents send.
const (
	noteUpdate       = "session/update"
	methodPermission = "session/request_permission"
	methodRead       = "fs/read_text_file"
)

// codeAuthRequired is the error of an agent that is not logged in.
const codeAuthRequired = -32000

// message is any line of an agent.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// initialized is the result of initialize.
type initialized struct {
	Version      int `json:"protocolVersion"`
	Capabilities struct {
		Load    bool `json:"loadSession"`
		Session struct {
			Directories json.RawMessage `json:"additionalDirectories"`
			Resume      json.RawMessage `json:"resume"`
			Close       json.RawMessage `json:"close"`
		} `json:"sessionCapabilities"`
	} `json:"agentCapabilities"`
	Agent struct {
		Version string `json:"version"`
	} `json:"agentInfo"`
	Methods []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"authMethods"`
}

// has reports whether a capability is offered, which an object or true says.
func has(capability json.RawMessage) bool {
	switch string(capability) {
	case "", "null", "false":
		return false
	}
	return true
}

// opened is the result of a request that opens a session.
type opened struct {
	Session string   `json:"sessionId"` // of a new one
	Options []option `json:"configOptions"`
	Modes   struct {
		Available []struct {
			ID string `json:"id"`
		} `json:"availableModes"`
	} `json:"modes"`
	Models struct {
		Current   string `json:"currentModelId"`
		Available []struct {
			ID string `json:"modelId"`
		} `json:"availableModels"`
	} `json:"models"`
}

// option is a setting of a session. Its values may be in groups.
type option struct {
	ID       string  `json:"id"`
	Category string  `json:"category"`
	Current  string  `json:"currentValue"`
	Values   []value `json:"options"`
}

// value is a value of an option, or a group of values.
type value struct {
	Value  string  `json:"value"`
	Values []value `json:"options"`
}

// values returns the values of an option.
func (o *option) values() []string {
	var all []string
	for _, v := range o.Values {
		if v.Value != "" {
			all = append(all, v.Value)
		}
		for _, of := range v.Values {
			all = append(all, of.Value)
		}
	}
	return all
}

// update is what a notification session/update says.
type update struct {
	Update struct {
		Kind      string          `json:"sessionUpdate"`
		Content   json.RawMessage `json:"content"` // of chunks: a block; of tool calls: a list
		MessageID string          `json:"messageId"`
		Tool      string          `json:"toolCallId"`
		Title     string          `json:"title"`
		ToolKind  string          `json:"kind"`
		Locations []struct {
			Path string `json:"path"`
		} `json:"locations"` // of tool calls: the files that they work on
		Entries []struct {
			Content string `json:"content"`
			Status  string `json:"status"`
		} `json:"entries"` // of a plan
		Cost *struct {
			Amount   float64 `json:"amount"`
			Currency string  `json:"currency"`
		} `json:"cost"`
		Options []option `json:"configOptions"`
	} `json:"update"`
}

// prompted is the result of a prompt.
type prompted struct {
	Stop  string `json:"stopReason"`
	Usage struct {
		Input      int64 `json:"inputTokens"`
		Output     int64 `json:"outputTokens"`
		CacheRead  int64 `json:"cachedReadTokens"`
		CacheWrite int64 `json:"cachedWriteTokens"`
	} `json:"usage"`
}

// Stop reasons.
const (
	stopEnd       = "end_turn"
	stopTokens    = "max_tokens"
	stopRequests  = "max_turn_requests"
	stopRefusal   = "refusal"
	stopCancelled = "cancelled"
)

// permission is what an agent asks before it uses a tool.
type permission struct {
	Tool struct {
		ID    string `json:"toolCallId"`
		Title string `json:"title"`
	} `json:"toolCall"`
	Options []struct {
		ID   string `json:"optionId"`
		Kind string `json:"kind"`
	} `json:"options"`
}

// toolText says what a tool does. Some agents have its kind for a title.
func toolText(kind, title string) string {
	if strings.EqualFold(kind, title) {
		return kind
	}
	return kind + " " + title
}
