// Package shellword quotes words of commands that messages show: a user copies them into a shell.
package shellword

import "strings"

// plain are the characters that no shell gives a meaning to.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,:@"

// Quote returns a text as one word of a shell. A word that every shell takes as it stands stays so.
func Quote(text string) string {
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
