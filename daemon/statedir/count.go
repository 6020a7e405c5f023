package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"holdline/protocol/ownfile"
)

// MaxCount is higher than any count, and than the seconds of any clock.
const MaxCount = 1 << 52

// ReadCount returns the number that the file path holds, and 0 if there is no such file. An
// error names the file: it cannot be read, or holds no count.
func ReadCount(path string) (int64, error) {
	b, err := ownfile.Read(path, ownfile.MaxNumber)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err == nil && (n < 0 || n >= MaxCount) {
		err = strconv.ErrRange
	}
	if err != nil {
		return 0, fmt.Errorf("%s holds no count: %w", path, err)
	}
	return n, nil
}
