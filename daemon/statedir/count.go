package statedir

import (
	"errors"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"holdline/protocol/ownfile"
)

// maxCount is higher than any count, and than the seconds of any clock.
const maxCount = 1 << 52

// ReadCount returns the number that the file path holds, and 0 if there is no such file.
// In place of a number that cannot be read it returns the seconds of the clock, and logs
// that: a count must never go back, and there are more seconds than there can have been
// daemons or workers. It returns an error if the file cannot be opened.
func ReadCount(path string, log *slog.Logger) (int64, error) {
	b, err := ownfile.Read(path, ownfile.MaxNumber)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var n int64
	if err == nil {
		n, err = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	}
	_, damaged := errors.AsType[*strconv.NumError](err)
	if damaged || errors.Is(err, ownfile.ErrRefused) || n < 0 || n >= maxCount {
		n = time.Now().Unix()
		log.Warn("a generation cannot be read, counting on from the clock", "path", path, "count", n, "err", err)
		return n, nil
	}
	return n, err
}
