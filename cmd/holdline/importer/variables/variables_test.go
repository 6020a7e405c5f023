package variables

import (
	"fmt"
	"strings"
	"testing"

	"holdline/daemon/clienttable"
)

// TestTranslate checks variables and dollars of each syntax. A want that begins with "stays" is in
// the reason why the string cannot be translated.
func TestTranslate(t *testing.T) {
	for _, tt := range []struct {
		syntax     clienttable.Syntax
		text, want string
	}{
		{clienttable.Literal, "a$${A} ${A}", "a$$${A} $${A}"},
		{clienttable.Shell, "${A} ${B:-c} $5 $$ $$D", "${A} ${B:-c} $5 $$ $$D"},
		{clienttable.Shell, "x$${A}", "stays: its args has a $ in front"},
		{clienttable.Dollar, "$A-${B} $5 $$", "${A}-${B} $5 $$"},
		{clienttable.Dollar, "$$A", "stays: its args has a $ in front"},
		{clienttable.Dollar, "$${A}", "stays: its args has a $ in front"},
		{clienttable.Editor, "${env:A} $A $$", "${A} $A $$"},
		{clienttable.Editor, "$${env:A}", "stays: its args has a $ in front"},
		{clienttable.Brackets, "{env:A} $A ${B}", "${A} $A $${B}"},
		{clienttable.Brackets, "${env:A}", "stays: its args has a $ in front"},
	} {
		why := ""
		translator := Translator{Syntax: tt.syntax, Stays: func(format string, args ...any) {
			why = "stays: " + fmt.Sprintf(format, args...)
		}}
		got := translator.Translate("args", tt.text)
		if strings.HasPrefix(tt.want, "stays") {
			if !strings.HasPrefix(why, tt.want) {
				t.Errorf("syntax %v, %s: %q, want %q", tt.syntax, tt.text, why, tt.want)
			}
		} else if why != "" || got != tt.want {
			t.Errorf("syntax %v, %s: %s, want %s; %s", tt.syntax, tt.text, got, tt.want, why)
		}
	}
}
