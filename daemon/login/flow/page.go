package flow

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"net/http"
	"strings"
)

// pageStyle is the whole style of the pages. The policy of a page allows it by its hash.
const pageStyle = `:root{color-scheme:light dark;font:17px/1.5 system-ui,sans-serif}
body{margin:0;min-height:100vh;display:grid;place-items:center}
main{max-width:34rem;margin:1rem;padding:1.5rem 2rem;border:1px solid #8884;border-radius:12px;border-left:6px solid}
main.good{border-left-color:#2a9d5c}main.bad{border-left-color:#d1495b}
h1{font-size:1.3rem;margin:0 0 .5rem}p{margin:.5rem 0;overflow-wrap:anywhere}`

// pageText is a page: no script, nothing from elsewhere. NAMES in capitals are replaced.
const pageText = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Holdline</title><style>` + pageStyle + `</style>
<main class="KIND"><h1>TITLE</h1><p>TEXT</p><p>You can close this page.</p></main></html>
`

// page is what the browser shows.
type page struct {
	status      int
	good        bool
	title, text string // of any content
}

// write answers a request with the page.
func (p page) write(w http.ResponseWriter) {
	kind := "bad"
	if p.good {
		kind = "good"
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(p.status)
	_, _ = strings.NewReplacer("KIND", kind, "TITLE", html.EscapeString(p.title), "TEXT", html.EscapeString(p.text)).
		WriteString(w, pageText) // a browser that has gone needs no page
}

// harden sets the headers of every answer: nothing is kept, framed, guessed or loaded, and
// the page's own address is sent nowhere.
func harden(h http.Header) {
	hash := sha256.Sum256([]byte(pageStyle))
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+
		base64.StdEncoding.EncodeToString(hash[:])+"'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
}
