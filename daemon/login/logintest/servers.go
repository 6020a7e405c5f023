package logintest

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// writeJSON answers with a JSON text.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}

// merge returns base with the keys of over; nil removes one.
func merge(base, over map[string]any) map[string]any {
	maps.Copy(base, over)
	maps.DeleteFunc(base, func(_ string, v any) bool { return v == nil })
	return base
}

// serveResource serves the metadata of the resource.
func (s *Server) serveResource(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.Public {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	base := map[string]any{"resource": s.URL, "authorization_servers": []string{s.Base}}
	if s.o.Scopes != nil {
		base["scopes_supported"] = s.o.Scopes
	}
	writeJSON(w, http.StatusOK, merge(base, s.o.Resource))
}

// serveIssuer serves the metadata of the authorization server.
func (s *Server) serveIssuer(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.Public {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	writeJSON(w, http.StatusOK, merge(map[string]any{
		"issuer": s.Base, "authorization_endpoint": s.Base + "/authorize", "token_endpoint": s.Base + "/token",
		"registration_endpoint": s.Base + "/register", "revocation_endpoint": s.Base + "/revoke",
		"device_authorization_endpoint": s.Base + "/device", "response_types_supported": []string{"code"},
		"code_challenge_methods_supported":               []string{"S256"},
		"token_endpoint_auth_methods_supported":          []string{"none", "client_secret_basic", "client_secret_post"},
		"authorization_response_iss_parameter_supported": !s.o.NoIss,
	}, s.o.Metadata))
}

// register serves dynamic registration.
func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var asked map[string]any
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]any{"error": "invalid_client_metadata"})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registrations = append(s.registrations, maps.Clone(asked))
	if s.o.Register != nil {
		if reply := s.o.Register(asked); reply != nil {
			w.WriteHeader(reply.Status)
			_, _ = io.WriteString(w, reply.Text)
			return
		}
	}
	id := s.nameLocked("client")
	s.clients[id] = ""
	asked["client_id"] = id
	if s.o.Confidential {
		s.clients[id] = s.nameLocked("client-secret")
		asked["client_secret"], asked["token_endpoint_auth_method"] = s.clients[id], "client_secret_basic"
	}
	writeJSON(w, http.StatusCreated, asked)
}

// consent is the form of a person who is asked.
const consent = `<!doctype html><title>Stand-in</title><form method="post"><button>Allow</button></form>`

// authorize agrees at once, as a person who is logged in does, or by a form, and sends the
// browser back.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	documents := s.o.Metadata["client_id_metadata_document_supported"] == true
	if documents && strings.HasPrefix(q.Get("client_id"), "https://") {
		s.clients[q.Get("client_id")] = ""
	}
	if _, known := s.clients[q.Get("client_id")]; !known || q.Get("code_challenge_method") != "S256" ||
		q.Has("resource") && q.Get("resource") == "" {
		http.Error(w, "no such client, no PKCE, or an empty resource", http.StatusBadRequest)
		return
	}
	if s.o.Form && r.Method != http.MethodPost {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, consent)
		return
	}
	code := s.nameLocked("code")
	s.codes[code] = &issued{
		family: &family{client: q.Get("client_id"), resource: q.Get("resource")},
		scopes: strings.Fields(q.Get("scope")), challenge: q.Get("code_challenge"), redirect: q.Get("redirect_uri"),
	}
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	if !s.o.NoIss {
		back.Set("iss", s.Base)
	}
	if s.o.Back != nil {
		s.o.Back(back)
	}
	//nolint:gosec // a stand-in for tests goes where the test says
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// device begins a device grant.
func (s *Server) device(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(r)
	code := s.nameLocked("device")
	s.devices[code] = &issued{
		family: &family{client: r.PostForm.Get("client_id"), resource: r.PostForm.Get("resource")},
		scopes: strings.Fields(r.PostForm.Get("scope")),
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"device_code": code, "user_code": "WDJB-MJHT", "verification_uri": s.Base + "/activate", "expires_in": 60,
		"interval": cmp.Or(s.o.Interval, 1),
	})
}

// Approve lets all device grants succeed.
func (s *Server) Approve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.devices {
		d.approved = true
	}
}

// revoke takes back a token and its login.
func (s *Server) revoke(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(r)
	token := r.PostForm.Get("token")
	for _, m := range []map[string]*issued{s.access, s.refresh} {
		if i := m[token]; i != nil {
			i.family.dead = true
		}
	}
	w.WriteHeader(http.StatusOK)
}

// noteLocked keeps a form. The caller must hold s.mu.
func (s *Server) noteLocked(r *http.Request) {
	form := maps.Clone(r.PostForm)
	form.Set("path", r.URL.Path)
	s.forms = append(s.forms, form)
}

// token is the token endpoint.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		return
	}
	reply := s.reply(r)
	if reply.Wait != nil {
		<-reply.Wait
	}
	if !reply.Break {
		maps.Copy(w.Header(), reply.Header)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(reply.Status)
		_, _ = io.WriteString(w, reply.Text)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	text := fmt.Sprintf("HTTP/1.1 %d x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		reply.Status, len(reply.Text), reply.Text)
	_, _ = io.WriteString(conn, text[:min(reply.Cut, len(text))])
}

// reply does what a request to the token endpoint asks for, and returns what is answered.
func (s *Server) reply(r *http.Request) Reply {
	s.mu.Lock()
	defer s.mu.Unlock() // even if the test's own function panics
	s.noteLocked(r)
	s.tokens++
	reply := Reply{Handle: true}
	if s.o.Token != nil {
		if other := s.o.Token(s.tokens, r.PostForm); other != nil {
			reply = *other
		}
	}
	if reply.Handle {
		status, body := s.handleLocked(r)
		b, _ := json.Marshal(body) // maps of strings and numbers
		reply.Status, reply.Text = status, string(b)
	}
	return reply
}

// refusal is the answer of a token endpoint that issues nothing.
func refusal(code string) (int, map[string]any) {
	return http.StatusBadRequest, map[string]any{"error": code, "error_description": "said the stand-in"}
}

// handleLocked does what a request to the token endpoint asks for. The caller must hold s.mu.
func (s *Server) handleLocked(r *http.Request) (int, map[string]any) {
	f := r.PostForm
	id, secret := f.Get("client_id"), f.Get("client_secret")
	if user, password, ok := r.BasicAuth(); ok {
		id, _ = url.QueryUnescape(user)
		secret, _ = url.QueryUnescape(password)
	}
	if want, known := s.clients[id]; f.Get("client_assertion") == "" && (!known || want != secret) {
		return http.StatusUnauthorized, map[string]any{"error": "invalid_client"}
	}
	switch f.Get("grant_type") {
	case "authorization_code":
		code := s.codes[f.Get("code")]
		sum := sha256.Sum256([]byte(f.Get("code_verifier")))
		if code == nil || code.uses > 0 || code.family.client != id || code.redirect != f.Get("redirect_uri") ||
			code.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) ||
			code.family.resource != f.Get("resource") {
			return refusal("invalid_grant")
		}
		code.uses++
		return s.grantLocked(code.family, code.scopes)
	case "urn:ietf:params:oauth:grant-type:device_code":
		d := s.devices[f.Get("device_code")]
		switch {
		case d == nil || d.family.client != id:
			return refusal("invalid_grant")
		case !d.approved:
			return refusal("authorization_pending")
		}
		return s.grantLocked(d.family, d.scopes)
	case "client_credentials":
		return s.grantLocked(&family{client: id, resource: f.Get("resource")}, strings.Fields(f.Get("scope")))
	case "refresh_token":
		return s.renewLocked(f.Get("refresh_token"), id, f.Get("resource"))
	}
	return refusal("unsupported_grant_type")
}

// grantLocked answers with new tokens. The caller must hold s.mu.
func (s *Server) grantLocked(f *family, scopes []string) (int, map[string]any) {
	access, refresh := s.issueLocked(f, scopes)
	body := map[string]any{"access_token": access, "token_type": "Bearer"}
	if refresh != "" {
		body["refresh_token"] = refresh
	}
	if s.o.Person != "" {
		claims, _ := json.Marshal(map[string]string{"email": s.o.Person}) // strings always encode
		body["id_token"] = "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".e30"
	}
	if s.o.Life > 0 {
		body["expires_in"] = int(s.o.Life.Seconds())
	}
	return http.StatusOK, body
}

// renewLocked spends a refresh token. The caller must hold s.mu.
func (s *Server) renewLocked(token, client, resource string) (int, map[string]any) {
	s.checkStoreLocked(token, `"mark"`)
	t := s.refresh[token]
	if t == nil || t.family.dead || t.family.client != client || t.family.resource != resource {
		return refusal("invalid_grant")
	}
	t.uses++
	if t.uses == 1 {
		t.used = time.Now()
	}
	rotates := s.o.Rotation != Fixed
	if after := s.access[t.successor]; rotates && after != nil && after.uses > 0 {
		s.wrongLocked("%s was sent again after its successor was in use", token)
	}
	if rotates && t.uses > 2 {
		s.wrongLocked("%s was sent %d times", token, t.uses)
	}
	if t.uses > 1 && (s.o.Rotation == Strict || s.o.Rotation == Graceful && time.Since(t.used) > grace) {
		t.family.dead = true
		return refusal("invalid_grant")
	}
	status, body := s.grantLocked(t.family, t.scopes)
	if !rotates {
		delete(body, "refresh_token")
	}
	if t.uses == 1 {
		t.successor, _ = body["access_token"].(string)
	}
	return status, body
}

// checkStoreLocked records a broken rule if no file of the watched directory has a token and
// that text. The caller must hold s.mu.
func (s *Server) checkStoreLocked(token, text string) {
	if s.store == "" {
		return
	}
	files, _ := filepath.Glob(filepath.Join(s.store, "*.json"))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		if strings.Contains(string(b), token) && strings.Contains(string(b), text) {
			return
		}
	}
	s.wrongLocked("%s came while no file had it with %s", token, text)
}

// serveMCP is the MCP server.
func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name    string `json:"name"`
			Version string `json:"protocolVersion"`
		} `json:"params"`
	}
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&m); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var need []string
	if s.o.Need != nil {
		need = s.o.Need(m.Method, m.Params.Name)
	}
	if code, challenge := s.authorizeLocked(bearer(r), need); code != 0 && (!s.o.Open || m.Method != "initialize") {
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(code)
		return
	}
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	var result any
	switch m.Method {
	case "initialize":
		result = map[string]any{
			"protocolVersion": m.Params.Version, "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]any{"name": "stand-in", "version": "1"},
		}
	case "tools/list":
		result = map[string]any{"tools": []any{map[string]any{
			"name": "echo", "inputSchema": map[string]any{"type": "object"},
		}}}
	case "tools/call":
		s.calls++
		result = map[string]any{"content": []any{map[string]any{"type": "text", "text": "done"}}}
	case "ping":
		result = map[string]any{}
	default:
		writeJSON(w, http.StatusOK, map[string]any{
			"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32601, "message": "unknown method"},
		})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
}

// authorizeLocked returns the status and the challenge with which a token is refused, or 0. The
// caller must hold s.mu.
func (s *Server) authorizeLocked(token string, need []string) (int, string) {
	challenge := fmt.Sprintf(`Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp"`, s.Base)
	t := s.access[token]
	switch {
	case s.o.Public:
		return 0, ""
	case token == "":
		return http.StatusUnauthorized, challenge
	case t == nil, s.o.Refuse, t.family.dead, !t.expires.IsZero() && time.Now().After(t.expires):
		return http.StatusUnauthorized, challenge + `, error="invalid_token"`
	}
	t.uses++
	s.checkStoreLocked(token, "")
	for _, scope := range need {
		if !strings.Contains(" "+strings.Join(t.scopes, " ")+" ", " "+scope+" ") {
			challenge += fmt.Sprintf(`, error="insufficient_scope", scope=%q`, strings.Join(need, " "))
			return http.StatusForbidden, challenge
		}
	}
	return 0, ""
}
