// Package networds says for people why a connection failed.
package networds

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
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
		return fmt.Sprintf("its certificate is not trusted: %v", certificate.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no server listens at its address"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "there is no network that leads to it"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return "it closed the connection"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case isDial: // without the address and the name of the system's call
		return op.Err.Error()
	}
	return err.Error()
}
