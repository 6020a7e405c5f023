// An identity provider for tests: zitadel CLIENT SECONDS
//
// It is the example of github.com/zitadel/oidc with one client that is registered by hand, one person whose
// name and password are ada, and access tokens that are good for some seconds. A refresh token is good once;
// one that comes again is refused, and nothing else happens. It prints its issuer, and then a line for each event.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

func main() {
	seconds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	storage.RegisterClients(
		storage.NativeClient(os.Args[1], "http://127.0.0.1/callback"), // at any port
		storage.WebClient("resource", "resource-secret"),
	)
	issuer := "http://" + socket.Addr().String() + "/"
	pages := exampleop.SetupServer(issuer, &store{
		Storage: storage.NewStorage(people{}), life: time.Duration(seconds) * time.Second, given: map[string]given{},
	}, nil, false)
	fmt.Println(issuer)
	log.Fatal(http.Serve(socket, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // the provider sees the same error
		seen := &watched{ResponseWriter: w, status: http.StatusOK}
		pages.ServeHTTP(seen, r)
		switch {
		case seen.status >= http.StatusInternalServerError:
			fmt.Printf("broken %s %q\n", r.URL.Path, seen.text)
		case r.URL.Path == "/revoke" && seen.status == http.StatusOK:
			fmt.Println("revoked")
		case r.URL.Path == "/oauth/token" && seen.status == http.StatusOK:
			fmt.Println("granted", r.PostForm.Get("grant_type"))
		case r.URL.Path == "/oauth/token" || seen.status >= http.StatusBadRequest && r.URL.Path == "/auth":
			fmt.Printf("refused %s %q\n", r.URL.Path, seen.text)
		}
	})))
}

// watched keeps the status and the text of an answer.
type watched struct {
	http.ResponseWriter

	status int
	text   []byte
}

func (w *watched) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	w.text = append(w.text, b...)
	return w.ResponseWriter.Write(b)
}

// people are all who can log in. The machine "sid1", which the example has, is known by its id.
type people struct{}

func (people) GetUserByID(id string) *storage.User { return &storage.User{ID: id, Username: id} }

func (people) GetUserByUsername(name string) *storage.User {
	if name != "ada" {
		return nil
	}
	return &storage.User{ID: name, Username: name, Password: name}
}

func (people) ExampleClientID() string { return "service" }

// given is what the store knows of an access token.
type given struct {
	expires  time.Time
	audience []string
}

// store is that of the example, whose access tokens are good for five minutes. Here they end earlier, any
// client knows the scope read, and tokens for devices can be renewed.
type store struct {
	*storage.Storage

	life time.Duration

	mu    sync.Mutex
	given map[string]given // by the id of the token; guarded by mu
}

func (s *store) CreateAccessToken(ctx context.Context, r op.TokenRequest) (string, time.Time, error) {
	id, _, err := s.Storage.CreateAccessToken(ctx, r)
	return id, s.give(id, r), err
}

func (s *store) CreateAccessAndRefreshTokens(
	ctx context.Context, r op.TokenRequest, current string,
) (id, refresh string, expires time.Time, err error) {
	if d, ok := r.(*op.DeviceAuthorizationState); ok { // the example forgets whose token it is
		r = &storage.AuthRequest{ApplicationID: d.ClientID, UserID: d.Subject, Scopes: d.Scopes}
	}
	id, refresh, _, err = s.Storage.CreateAccessAndRefreshTokens(ctx, r, current)
	return id, refresh, s.give(id, r), err
}

// give records a token, and returns when it ends.
func (s *store) give(id string, r op.TokenRequest) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := given{time.Now().Add(s.life), r.GetAudience()}
	s.given[id] = g
	return g.expires
}

// SetIntrospectionFromToken answers the resource server. The example answers only the client of a token.
func (s *store) SetIntrospectionFromToken(
	ctx context.Context, answer *oidc.IntrospectionResponse, id, subject, client string,
) error {
	s.mu.Lock()
	g := s.given[id]
	s.mu.Unlock()
	if client != "resource" || len(g.audience) == 0 || time.Now().After(g.expires) {
		return fmt.Errorf("token %s is not good for %s", id, client)
	}
	err := s.Storage.SetIntrospectionFromToken(ctx, answer, id, subject, g.audience[0])
	answer.Audience, answer.Expiration = g.audience, oidc.FromTime(g.expires)
	return err
}

func (s *store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := s.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return client{c}, nil
}

// client is one of the example that may use codes for devices, and ask for the scope read.
type client struct{ op.Client }

func (c client) GrantTypes() []oidc.GrantType {
	return append(slices.Clone(c.Client.GrantTypes()), oidc.GrantTypeDeviceCode)
}

func (client) IsScopeAllowed(scope string) bool { return scope == "read" }
