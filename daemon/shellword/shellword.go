// Package shellword quotes words of commands that messages show: a user copies them into a shell.
package shellword

import "strings"

// plain are the characters, beside letters and digits, that no shell gives a meaning to.
const plain = "/._-+,:@"

// Quote returns a text as one word of a shell. A word that every shell takes as it stands stays so.
func Quote(text string) string {
	for _, r := range text {
		isPlain := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(plain, r)
		if !isPlain {
			return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
		}
	}
	if text == "" {
		return "''"
	}
	return text
}
