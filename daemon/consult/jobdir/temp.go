package jobdir

import (
	"path/filepath"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/statedir"
	"holdline/protocol/fault"
)

// maxTemp bounds the path of a run's temporary directory, in bytes. The program's
// sandbox makes sockets in it with names like claude-http-0123456789abcdef.sock (34
// bytes with the slash), and the path of a socket has at most 107 bytes.
const maxTemp = 107 - 34

// MakeTemp makes the temporary directory of a run in the job's directory, if it is not
// there, and returns its path. If that path is too long for the sandbox of level shell,
// it makes another one beside the worker's socket, below sockets, and returns that. The
// error is a fault if that path is too long as well.
func MakeTemp(dir, sockets, level string) (string, error) {
	temp := filepath.Join(dir, DirTemp)
	if err := statedir.MakeDir(temp); err != nil {
		return "", err
	}
	if level != engine.LevelShell || len(temp) <= maxTemp {
		return temp, nil
	}
	short := filepath.Join(sockets, filepath.Base(dir), DirTemp)
	if len(short) > maxTemp {
		return "", fault.New(fault.Denied, fault.Host, engine.Operation,
			"level %s cannot be enforced on this machine: the paths of the state directory (%s) and of the socket's "+
				"(%s) are too long for the sandbox's own sockets",
			level, filepath.Dir(dir), sockets)
	}
	for _, dir := range []string{sockets, filepath.Dir(short), short} {
		if err := statedir.MakeDir(dir); err != nil {
			return "", err
		}
	}
	return short, nil
}
