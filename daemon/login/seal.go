package login

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"
)

// ErrNoKey reports that the files are sealed and the key cannot be had. Nothing is lost.
var ErrNoKey = errors.New("is sealed, and logins.key_command of the configuration gave no key")

// Limits of the key command.
const (
	keyTimeout = 10 * time.Second
	keySize    = 32               // bytes
	keyPause   = 10 * time.Second // after a failure, before the command runs again
)

// Key has the key that seals the files. The command runs when a file is first read or
// written, and once in a process if it succeeds. A nil Key seals nothing.
type Key struct {
	command []string // argv
	environ []string

	mu     sync.Mutex
	aead   cipher.AEAD
	err    error     // of the last run
	failed time.Time // when that was
}

// NewKey returns the key that a command prints as 64 hexadecimal digits, or nil if command
// is empty. environ is the environment of the command.
func NewKey(command, environ []string) *Key {
	if len(command) == 0 {
		return nil
	}
	return &Key{command: command, environ: environ}
}

// Check runs the command if it has not run yet, and returns an error that wraps [ErrNoKey]
// if it gives no key.
func (k *Key) Check() error {
	if k == nil {
		return nil
	}
	_, err := k.cipher()
	return err
}

// cipher returns the cipher of the key.
func (k *Key) cipher() (cipher.AEAD, error) {
	if k == nil {
		return nil, fmt.Errorf("%w: it is not set", ErrNoKey)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.aead == nil && (k.err == nil || time.Since(k.failed) > keyPause) {
		k.aead, k.err = k.run()
		k.failed = time.Now()
	}
	return k.aead, k.err
}

// run runs the command. Its error shows nothing of what the command has printed.
func (k *Key) run() (cipher.AEAD, error) {
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, k.command[0], k.command[1:]...)
	cmd.Env, cmd.WaitDelay = k.environ, time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNoKey, k.command[0], err)
	}
	key, err := hex.DecodeString(string(bytes.TrimSpace(out)))
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("%w: %s did not print %d hexadecimal digits", ErrNoKey, k.command[0], 2*keySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// sealed is a file under seal.
type sealed struct {
	Version int    `json:"version"`
	Sealed  []byte `json:"sealed"` // nonce and ciphertext
}

// seal returns the text of a file under the key, or as it is if there is no key. name
// binds the text to its file.
func (k *Key) seal(name string, text []byte) ([]byte, error) {
	if k == nil {
		return text, nil
	}
	aead, err := k.cipher()
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return json.Marshal(sealed{version, aead.Seal(nonce, nonce, text, []byte(name))})
}

// unseal returns the text of a file, which may be without a seal.
func (k *Key) unseal(name string, b []byte) ([]byte, error) {
	var s sealed
	if json.Unmarshal(b, &s) != nil {
		return nil, ErrBroken
	}
	if s.Sealed == nil {
		return b, nil
	}
	if s.Version > version {
		return nil, ErrNewer
	}
	aead, err := k.cipher()
	if err != nil {
		return nil, err
	}
	if len(s.Sealed) < aead.NonceSize() {
		return nil, ErrBroken
	}
	text, err := aead.Open(nil, s.Sealed[:aead.NonceSize()], s.Sealed[aead.NonceSize():], []byte(name))
	if err != nil {
		return nil, fmt.Errorf("%w: the key is another one", ErrNoKey)
	}
	return text, nil
}
