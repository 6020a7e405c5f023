package top

import (
	"charm.land/lipgloss/v2"
)

// Words have the terminal's own colours, which its user has chosen for the background, or a
// grey that can be read on any. Bars and marks bring their background. Bubbletea replaces
// colours where a terminal has fewer, and leaves them out where the user wants none.
var (
	plainText = lipgloss.NewStyle()
	boldText  = plainText.Bold(true)
	dimText   = plainText.Foreground(lipgloss.Color("244"))
	goodText  = plainText.Foreground(lipgloss.Color("2"))
	oddText   = plainText.Foreground(lipgloss.Color("3"))
	badText   = plainText.Foreground(lipgloss.Color("1"))
	liveText  = plainText.Foreground(lipgloss.Color("6"))
	keyText   = plainText.Foreground(lipgloss.Color("6")).Bold(true)

	badge      = plainText.Background(lipgloss.Color("31")).Foreground(lipgloss.Color("231")).Bold(true)
	heading    = plainText.Background(lipgloss.Color("237")).Foreground(lipgloss.Color("250"))
	atHeading  = plainText.Background(lipgloss.Color("31")).Foreground(lipgloss.Color("231")).Bold(true)
	selection  = lipgloss.Color("236")
	selectFore = lipgloss.Color("255")
	alarm      = plainText.Background(lipgloss.Color("124")).Foreground(lipgloss.Color("231")).Bold(true)
	question   = plainText.Background(lipgloss.Color("214")).Foreground(lipgloss.Color("16")).Bold(true)
)

// heat are the colours of the bars of a sparkline, from the lowest to the highest.
var heat = [...]lipgloss.Style{
	plainText.Foreground(lipgloss.Color("24")), plainText.Foreground(lipgloss.Color("24")),
	plainText.Foreground(lipgloss.Color("30")), plainText.Foreground(lipgloss.Color("31")),
	plainText.Foreground(lipgloss.Color("37")), plainText.Foreground(lipgloss.Color("38")),
	plainText.Foreground(lipgloss.Color("44")), plainText.Foreground(lipgloss.Color("45")),
}

// bars are the characters of a sparkline, from the lowest to the highest.
var bars = [len(heat)]string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}
