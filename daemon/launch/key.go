package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"strings"

	"holdline/daemon/config"
	"holdline/daemon/redact"
)

// keyed is what the process of a server depends on. The daemon's own environment is not part of
// it, since it may differ after each start. A key of the configuration that comes later is another
// field, whose zero value is the default: see [serverKey].
type keyed struct {
	Command     string                    `json:"command"`
	Args        []string                  `json:"args"`
	Env         map[string]redact.Secret  `json:"env"`
	Cwd         string                    `json:"cwd"`
	InheritEnv  string                    `json:"inherit_env"` // "" for the default
	EnvFile     string                    `json:"env_file"`
	EnvCommands map[string]config.Command `json:"env_commands"`
	Commands    map[string]config.Command `json:"commands"`
	Confine     string                    `json:"confine"` // "" for a server that is not confined
	Write       []string                  `json:"write"`
	Network     string                    `json:"network"`
	Bounds      config.Bounds             `json:"limits"`
	URL         string                    `json:"url"`
	Headers     map[string]redact.Secret  `json:"headers"`
	OAuth       config.OAuth              `json:"oauth"`
	Host        string                    `json:"host"`
	KeyCommand  []string                  `json:"key_command"`
}

// serverKey returns a key that is equal for two entries of the configuration whose processes may
// stand for each other. It is made of what an entry sets and of nothing else: a newer program, whose
// configuration has more keys, must not take the entry for another one and restart its server.
func serverKey(s *config.Settings, keyCommand []string) string {
	k := keyed{
		Command: s.Command, Args: s.Args, Env: s.Env, Cwd: s.Cwd, EnvFile: s.EnvFile,
		EnvCommands: s.EnvCommands, Commands: s.Commands, Bounds: s.Bounds, Host: s.Host,
	}
	if s.InheritEnv != config.InheritCore {
		k.InheritEnv = s.InheritEnv
	}
	if s.Confine != config.ConfineOff {
		k.Confine, k.Write, k.Network = s.Confine, s.Write, s.Network.String()
	}
	if s.URL != "" {
		k.URL, k.Headers, k.OAuth = s.URL, s.Headers, s.OAuth
	}
	if s.LogsIn() {
		k.KeyCommand = keyCommand
	}
	return hashSet(k)
}

// hashSet returns a hash of what v, a struct, sets: of the fields that are not zero or empty, by
// their names in JSON. Neither the order of the fields nor one more that is not set changes it.
func hashSet(v any) string {
	b, err := json.Marshal(set(reflect.ValueOf(v))) // which sorts the keys of maps
	if err != nil {                                 // it cannot fail: strings and numbers always encode
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// set returns v for JSON: a struct without the fields that are not set, and secrets as they are.
// Entries of maps and lists are kept: an empty variable is not one that is missing.
func set(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Struct:
		members := map[string]any{}
		for i := range v.NumField() {
			f := v.Field(i)
			if listed := f.Kind() == reflect.Slice || f.Kind() == reflect.Map; f.IsZero() || listed && f.Len() == 0 {
				continue
			}
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			members[name] = set(f)
		}
		return members
	case reflect.Pointer:
		return set(v.Elem())
	case reflect.Map:
		entries := map[string]any{}
		for key, value := range v.Seq2() {
			entries[key.String()] = set(value)
		}
		return entries
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = set(v.Index(i))
		}
		return list
	case reflect.String:
		return v.String() // without the method by which a secret hides itself
	default:
		return v.Interface()
	}
}
