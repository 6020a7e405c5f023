package contrib

import (
	_ "embed" // for the units
	"fmt"
	"path/filepath"
	"strings"
)

// Names of the units of systemd's user manager.
const (
	SystemdSocket  = "holdline.socket"
	SystemdService = "holdline.service"
)

// packagedBin is the path of the program in the unit as it is packaged.
const packagedBin = "/usr/bin/holdline"

//go:embed systemd/holdline.socket
var systemdSocket string

//go:embed systemd/holdline.service
var systemdService string

// Unit is one file of a service manager.
type Unit struct {
	Name string
	Text string
}

// SystemdUnits returns the units of systemd's user manager for the program at bin. It returns
// an error for a path that a unit cannot name.
func SystemdUnits(bin string) ([]Unit, error) {
	if err := nameable(bin); err != nil {
		return nil, err
	}
	if strings.Contains(bin, " ") {
		bin = `"` + bin + `"`
	}
	return []Unit{
		{SystemdSocket, systemdSocket},
		{SystemdService, strings.ReplaceAll(systemdService, "="+packagedBin+" ", "="+bin+" ")},
	}, nil
}

// nameable returns an error for a path that systemd would not take literally
// (systemd.service(5), "Command lines"; systemd.unit(5), "Specifiers").
func nameable(bin string) error {
	switch {
	case !filepath.IsAbs(bin):
		return fmt.Errorf("a unit cannot name %q: the path is not absolute", bin)
	case strings.ContainsFunc(bin, func(r rune) bool {
		return r < ' ' || r == 0x7f || strings.ContainsRune(`"'\$%;`, r)
	}):
		return fmt.Errorf("a unit cannot name %q: quotes, backslashes, $, %%, ; and control characters "+
			"mean something else there; use a link to it", bin)
	}
	return nil
}
