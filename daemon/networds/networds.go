// Package networds says for people why a connection failed.
package networds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"

	"holdline/daemon/lazyregexp"
)

// Of says in words what went wrong with a connection. It leaves out the address, which
// may contain a secret.
func Of(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	var timeout interface{ Timeout() bool }
	dns, isName := errors.AsType[*net.DNSError](err)
	certificate, isCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	op, isDial := errors.AsType[*net.OpError](err)
	switch {
	case isName && dns.IsNotFound:
		return "no host has the name " + dns.Name
	case isCertificate:
		said := fmt.Sprintf("its certificate is not trusted: %v", certificate.Err)
		if _, unknown := errors.AsType[x509.UnknownAuthorityError](certificate.Err); unknown {
			said += ". If your network has a certificate authority of its own, name its file in SSL_CERT_FILE or " +
				"NODE_EXTRA_CA_CERTS, in the profile of your shell"
		}
		return said
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no server listens at its address"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "there is no network that leads to it"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return "it closed the connection"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case isDial: // without the address and the name of the system's call
		return op.Err.Error()
	}
	return ofHTTP(err.Error())
}

// ofHTTP puts a text of net/http into words. Its errors have no types that others can name. What it quotes came
// from the server, which may repeat a secret that it was sent, so that is left out.
func ofHTTP(text string) string {
	if reset := streamReset().FindStringSubmatch(text); reset != nil {
		return "it ended the request without an answer: " + reset[1]
	}
	for _, closed := range []string{
		"cannot rewind body", "server closed idle connection", "GOAWAY", "client connection lost",
		"client connection force closed", "use of closed network connection",
	} {
		if strings.Contains(text, closed) {
			return "it closed the connection"
		}
	}
	for _, strange := range []string{
		"transport connection broken", "malformed", "bad Content-Length", "transfer encoding", "Location header",
	} {
		if strings.Contains(text, strange) {
			return "it sent what is no HTTP answer"
		}
	}
	return text
}

// streamReset matches the error of a stream of HTTP/2 that the other side has ended.
var streamReset = lazyregexp.New(`stream error: stream ID \d+; (\w+); received from peer`)
