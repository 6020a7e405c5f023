package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// TestForms_SecretIsHiddenAsProgramsWriteIt hides a secret in each form in which programs write it, with other
// text around it, and checks that what is left has nothing of it; and that other text stays.
func TestForms_SecretIsHiddenAsProgramsWriteIt(t *testing.T) {
	t.Parallel()
	lower := strings.NewReplacer("%2F", "%2f", "%2B", "%2b", "%3C", "%3c", "%3E", "%3e")
	for _, secret := range []string{"p@ss/wo\"rd+1 & more<>", "plain-secret-0123456789", "twelve bytes"} {
		words := Forms([]string{secret, ""})
		for i := range words {
			if words[i] == "" || i > 0 && len(words[i]) > len(words[i-1]) {
				t.Fatalf("the words are not sorted, or one is empty: %q", words)
			}
		}
		quoted, err := json.Marshal(secret)
		if err != nil {
			t.Fatal(err)
		}
		inner := string(quoted[1 : len(quoted)-1])
		for name, text := range map[string]string{
			"as it is": secret, "in a query": url.QueryEscape(secret), "in a path": url.PathEscape(secret), "in JSON": inner,
			"in lower case": lower.Replace(url.QueryEscape(secret)), "in hexadecimal": hex.EncodeToString([]byte(secret)),
			"in large hexadecimal": strings.ToUpper(hex.EncodeToString([]byte(secret))),
		} {
			if got := Mask("begin "+text+" end", words); !strings.Contains(got, Hidden) || strings.Contains(got, text) ||
				!strings.HasPrefix(got, "begin ") || !strings.HasSuffix(got, " end") {
				t.Errorf("%q %s: %s", secret, name, got)
			}
		}
		for before := range 7 {
			for _, alphabet := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				text := alphabet.EncodeToString([]byte("abcdefg"[:before] + secret + "more"))
				got := Mask(text, words)
				if !strings.Contains(got, Hidden) || len(got) > (before+4)*4/3+len(Hidden)+8 {
					t.Errorf("%q in base64 behind %d bytes: %s of %s", secret, before, got, text)
				}
			}
		}
		if got := Mask("nothing of it", words); got != "nothing of it" {
			t.Errorf("other text becomes %q", got)
		}
	}
}
