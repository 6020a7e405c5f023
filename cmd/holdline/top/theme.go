package top

import (
	"charm.land/lipgloss/v2"
)

// The colours are of the 256 that nearly every terminal has; bubbletea replaces them where
// there are fewer, and leaves them out where the user wants none. Text has the colour that
// the user has chosen for text, so that it can be read on any background.
var (
	plainText = lipgloss.NewStyle()
	boldText  = plainText.Bold(true)
	dimText   = plainText.Foreground(lipgloss.Color("244"))
	goodText  = plainText.Foreground(lipgloss.Color("78"))
	oddText   = plainText.Foreground(lipgloss.Color("214"))
	badText   = plainText.Foreground(lipgloss.Color("203"))
	liveText  = plainText.Foreground(lipgloss.Color("45"))
	keyText   = plainText.Foreground(lipgloss.Color("45")).Bold(true)

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
	plainText.Foreground(lipgloss.Color("24")), plainText.Foreground(lipgloss.Color("30")),
	plainText.Foreground(lipgloss.Color("31")), plainText.Foreground(lipgloss.Color("37")),
	plainText.Foreground(lipgloss.Color("38")), plainText.Foreground(lipgloss.Color("44")),
	plainText.Foreground(lipgloss.Color("45")), plainText.Foreground(lipgloss.Color("87")),
}

// bars are the characters of a sparkline, from the lowest to the highest.
var bars = [len(heat)]string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}
