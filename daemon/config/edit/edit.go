// Package edit changes the configuration file: servers, single keys, or all of it. Comments and
// everything that a change does not concern stay as they are, and no change makes a file that is
// not valid.
package edit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"holdline/daemon/config"
	"holdline/daemon/jsonedit"
)

// ErrServerExists is returned by [AddServer] for a name that is taken.
var ErrServerExists = errors.New("is configured already")

// AddServer puts a server, the JSON object that stands for it, into the file at path,
// which is created if need be. Comments and everything else in the file stay as they
// are, and so does its mode; a new one has mode 0600. A server of that name is
// replaced if replace is set, else the error wraps [ErrServerExists].
//
// The file is replaced as a whole or not at all, through symbolic links, and only if
// it was valid before and is valid then. Edits wait for each other, for up to
// editWait. The same holds for the other functions that edit.
func AddServer(ctx context.Context, path, name string, server []byte, replace bool) error {
	if err := CheckServer(name, server); err != nil {
		return err
	}
	return editFile(ctx, path, func(x *jsonedit.File, _ config.Config) error {
		if _, there := x.Text(serversKey, name); there && !replace {
			return fmt.Errorf("server %s %w", name, ErrServerExists)
		}
		return x.Set(string(server), serversKey, name)
	})
}

// serversKey is the key of the object with the servers.
const serversKey = "mcpServers"

// ServerText returns the text that stands for a server in the file at path, with its comments, as it would stand at
// the beginning of a line.
func ServerText(path, name string) (string, error) {
	data, err := config.Read(path)
	if err != nil {
		return "", err
	}
	x, err := jsonedit.Parse(path, data)
	if err != nil {
		return "", err
	}
	text, ok := x.Text(serversKey, name)
	if !ok {
		return "", fmt.Errorf("server %s %w", name, config.ErrNoServer)
	}
	return outdent(text), nil
}

// ReplaceServer makes the text that stands for a server another one, which may have comments in and around it, and
// keeps its layout. It reports whether anything changed. The error wraps [ErrChanged] if [ServerText] would not
// return before any more.
func ReplaceServer(ctx context.Context, path, name, before string, after []byte) (changed bool, err error) {
	if err := CheckServer(name, after); err != nil {
		return false, err
	}
	root, err := hujson.Parse(after)
	if err != nil {
		return false, err
	}
	text := string(after[root.StartOffset:root.EndOffset])
	if text == before {
		return false, nil
	}
	return true, editFile(ctx, path, func(x *jsonedit.File, _ config.Config) error {
		now, ok := x.Text(serversKey, name)
		if !ok || outdent(now) != before {
			return fmt.Errorf("server %s: %w", name, ErrChanged)
		}
		return x.Put(strings.ReplaceAll(text, "\n", "\n"+indentOf(now)), serversKey, name)
	})
}

// indentOf returns the indentation of the line with the end of a text, which is that of its beginning in a file.
func indentOf(text string) string {
	last := text[strings.LastIndexByte(text, '\n')+1:]
	if len(last) == len(text) {
		return ""
	}
	return last[:len(last)-len(strings.TrimLeft(last, " \t"))]
}

// outdent returns a text of a file as it would stand at the beginning of a line.
func outdent(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n"+indentOf(text), "\n")
}

// RemoveServer removes a server from the file at path, with its comments. If the file
// does not name it, the error wraps [config.ErrNoServer].
func RemoveServer(ctx context.Context, path, name string) error {
	return editFile(ctx, path, func(x *jsonedit.File, before config.Config) error {
		if !x.Remove(serversKey, name) {
			return config.NoServer(name, &before)
		}
		return nil
	})
}

// EnableServer switches a server on or off in the file at path. It returns false if the
// server was so already; then the file was not touched.
func EnableServer(ctx context.Context, path, name string, on bool) (changed bool, err error) {
	err = editFile(ctx, path, func(x *jsonedit.File, before config.Config) error {
		s, ok := before.Server(name)
		if !ok {
			return config.NoServer(name, &before)
		}
		if err := s.Unusable(); err != nil && !s.Enabled { // what is wrong is more than the switch
			return fmt.Errorf("server %s: %w", name, err)
		}
		if s.Enabled == on {
			return nil
		}
		changed = true
		return enable(x, name, on)
	})
	return changed && err == nil, err
}

// enable switches a server of the file x on or off, by the keys that its entry has
// already: other clients write enabled or disabled, and one of both must not
// contradict the other.
func enable(x *jsonedit.File, name string, on bool) error {
	_, hasEnabled := x.Text(serversKey, name, "enabled")
	if on {
		x.Remove(serversKey, name, "disabled")
		x.Remove(serversKey, name, "holdline", "disabled")
	}
	switch {
	case hasEnabled:
		return x.Set(strconv.FormatBool(on), serversKey, name, "enabled")
	case on:
		return nil
	}
	return x.Set("true", serversKey, name, "disabled")
}

// SetKey gives a key of the file at path a value, which is checked as the file is. It keeps
// everything else in the file, as [AddServer] does.
func SetKey(ctx context.Context, path string, k config.Key, value string) error {
	text, err := k.Encode(value)
	if err != nil {
		return err
	}
	return editFile(ctx, path, func(x *jsonedit.File, before config.Config) error {
		// A server consists of more than one setting, so a setting does not make one.
		if len(k) > 2 && k[0] == serversKey {
			if _, ok := before.Servers[k[1]]; !ok {
				return config.NoServer(k[1], &before)
			}
		}
		data := x.Bytes()
		if err := x.Set(text, k...); err != nil {
			return err
		}
		return plainErrors(config.CheckEdit(path, data, x.Bytes()))
	})
}

// UnsetKey removes a key from the file at path, with its comments, so that its default holds.
// It reports whether the file had it.
func UnsetKey(ctx context.Context, path string, k config.Key) (had bool, err error) {
	err = editFile(ctx, path, func(x *jsonedit.File, _ config.Config) error {
		data := x.Bytes()
		if had = x.Remove(k...); !had {
			return nil
		}
		return plainErrors(config.CheckEdit(path, data, x.Bytes()))
	})
	return had && err == nil, err
}

// CheckServer checks a server by itself, so that what is wrong with it is said
// without a place in a file where it does not stand yet.
func CheckServer(name string, server []byte) error {
	cfg, err := ParseServer(name, server)
	if err != nil {
		return err
	}
	s, _ := cfg.Server(name)
	return s.Unusable()
}

// ParseServer returns a configuration that has nothing but that server, the JSON object that stands for it.
func ParseServer(name string, server []byte) (cfg config.Config, err error) {
	root, err := hujson.Parse(server)
	if err != nil {
		return cfg, jsonedit.SyntaxError("the server's JSON", err)
	}
	if root.Value.Kind() != '{' {
		return cfg, errors.New("the server's JSON wants an object such as {\"command\": \"npx\"}")
	}
	key, err := json.Marshal(name)
	if err != nil {
		return cfg, err
	}
	text := fmt.Appendf(nil, "{\"mcpServers\": {%s: %s\n}}", key, server)
	cfg, err = config.Parse("", text)
	return cfg, plainErrors(err)
}

// plainErrors returns the mistakes of a configuration without their places, for a text that no file has.
func plainErrors(err error) error {
	var many interface{ Unwrap() []error }
	if !errors.As(err, &many) {
		return err
	}
	var plain []error
	for _, err := range many.Unwrap() {
		if e, ok := errors.AsType[*config.Error](err); ok {
			err = errors.New(e.Message)
		}
		plain = append(plain, err)
	}
	return errors.Join(plain...)
}

// editFile changes the file at path, which must be valid but for servers that are left out.
func editFile(ctx context.Context, path string, change func(x *jsonedit.File, before config.Config) error) error {
	return replaceFile(ctx, path, func(data []byte) ([]byte, error) {
		before, err := config.ParseForUse(path, data)
		if err != nil {
			return nil, err
		}
		x, err := jsonedit.Parse(path, data)
		if err != nil {
			return nil, err
		}
		if err := change(x, before); err != nil {
			return nil, err
		}
		return x.Bytes(), nil
	})
}
