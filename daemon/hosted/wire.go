package hosted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Eras of a server.
const (
	legacy = "legacy"
	modern = "modern"
)

// envelope is what a server of an era wants to see in the requests of a client
// of the other.
type envelope struct {
	era  string          // the server's
	meta json.RawMessage // members of a modern _meta, joined by commas
	logs bool            // it may be asked for log messages
}

// params makes the params of a request for the server: its own name for what is
// asked for, and the token if the client wants
// progress.
func (e envelope) params(c *tool.RemoteCall, o *listing.Offer, token json.RawMessage) (json.RawMessage, error) {
	quoted := jsonrpc.AppendString(nil, o.Own)
	dressed := e.era != modern || c.Modern
	own := string(e.meta)
	if e.logs && c.Level != "" {
		own += fmt.Sprintf(",%q:%q", mcp.MetaLevel, c.Level)
	}
	var bad error
	params, err := jsonrpc.Rewrite(c.Params, func(key string, value []byte) []byte {
		switch key {
		case "name":
			if o.Method != mcp.ResourcesRead && o.Method != mcp.Complete {
				return quoted
			}
		case "ref":
			if o.Method == mcp.Complete {
				value, bad = reference(value, quoted)
			}
		case "inputResponses", "requestState":
			if c.Modern && e.era != modern { // they were for the daemon
				return nil
			}
		case "_meta":
			meta, err := jsonrpc.Rewrite(value, func(key string, value []byte) []byte {
				if key == mcp.MetaProgress {
					if c.Progress == nil {
						return nil
					}
					return token
				}
				return value
			})
			if err != nil {
				bad = err
			}
			if !dressed {
				dressed = true
				meta = jsonrpc.Prepend(meta, own)
			}
			return meta
		}
		return value
	})
	if err != nil {
		return nil, err
	}
	if bad != nil {
		return nil, bad
	}
	if !dressed {
		params = jsonrpc.Prepend(params, `"_meta":{`+own+`}`)
	}
	return params, nil
}

// reference is what a completion is for, by the server's own name.
func reference(ref, quoted []byte) ([]byte, error) {
	return jsonrpc.Rewrite(ref, func(key string, value []byte) []byte {
		if key == "name" {
			return quoted
		}
		return value
	})
}

// number is the write that an id or a token spells; 0 if it spells none. Some
// servers read every number as a floating one, and say 7.0 where they were told
// 7; others keep ids as strings, and say "7".
func number(raw []byte) int64 {
	raw = bytes.Trim(raw, `"`)
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil && len(raw) > 0 && (raw[0] >= '0' && raw[0] <= '9') {
		if f, err := strconv.ParseFloat(string(raw), 64); err == nil && f == math.Trunc(f) && f < 1<<53 {
			return max(int64(f), 0)
		}
	}
	if err != nil || n < 1 {
		return 0
	}
	return n
}
