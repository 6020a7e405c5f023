//go:build !linux

package leaf

import "errors"

// find is [Launch.find] of other systems.
func (*Launch) find(*record, int) error {
	return errors.New("its program is looked for on Linux alone")
}
