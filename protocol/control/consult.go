package control

import (
	"encoding/json"

	"holdline/protocol/fault"
)

// ConsultKey of [ConsultClose].
type ConsultKey struct {
	Key string `json:"key"` // as in [ConsultParams], of a command that has its answer
}

// ConsultParams of [ConsultRun].
type ConsultParams struct {
	Identity  string          `json:"identity"`
	Cwd       string          `json:"cwd"`       // of the command line
	Project   string          `json:"project"`   // key
	Arguments json.RawMessage `json:"arguments"` // the consult tool's
	// Key is a random word that the client has chosen. A second request with the
	// same key, to this daemon or to the next one, gets the same consult, which
	// runs once. With "" each request begins a new consult.
	Key string `json:"key,omitempty"`
	// Logins are the names of [protocol.LoginVariables] that the command line has.
	Logins []string `json:"logins,omitempty"`
}

// ConsultID names a consult.
type ConsultID struct {
	ID string `json:"consult_id"`
}

// SayParams of [ConsultSay].
type SayParams struct {
	ID   string `json:"consult_id"`
	Text string `json:"text"`
	Key  string `json:"key"` // as in [ConsultParams]: with the same key the message is said once
}

// Words of a [Receipt].
const (
	MessageDelivered = "delivered" // the program has taken it
	MessageQueued    = "queued"    // it is written down, and waits
)

// Receipt says how a message to a consult stands.
type Receipt struct {
	Receipt   string `json:"receipt"`
	MessageID string `json:"message_id"`
	// ConsultID is the consult that gets the message: another one, if the consult that it was
	// said to had ended.
	ConsultID string `json:"consult_id"`
}

// Words returns the receipt for people.
func (r Receipt) Words() string {
	if r.Receipt == MessageDelivered {
		return "delivered: consult " + r.ConsultID + " has the message"
	}
	return "queued: consult " + r.ConsultID + " gets the message next"
}

// ConsultAnswer says how a consult ended, or stands.
type ConsultAnswer struct {
	Text  string          `json:"text"`  // the answer alone; may be partial
	Value json.RawMessage `json:"value"` // what the tool gives with render=json, detail=full
	Fault *fault.Record   `json:"fault,omitempty"`
}

// ConsultListAnswer of [ConsultList].
type ConsultListAnswer struct {
	Consults []Consult `json:"consults"`
}

// Consult is one row of the list.
type Consult struct {
	ID        string   `json:"id"`
	State     string   `json:"state"` // queued, running, done, failed, cancelled
	Identity  string   `json:"identity"`
	Cwd       string   `json:"cwd"`
	Model     string   `json:"model"`
	CreatedMS int64    `json:"created_unix_ms"`
	TookMS    int64    `json:"took_ms"`
	CostUSD   *float64 `json:"cost_usd"`
	Code      string   `json:"code,omitempty"` // of the fault, if it failed
	Engine    string   `json:"engine"`

	Level      string `json:"level,omitempty"`
	EnforcedBy string `json:"enforced_by,omitempty"`

	Question string `json:"question,omitempty"` // its beginning, on one line
	Note     string `json:"note,omitempty"`     // what it does, if it has not ended

	Panel string `json:"panel,omitempty"` // id of the panel that it is a member of
	Label string `json:"label,omitempty"` // how the panel calls it: A, B and so on, or judge
}
