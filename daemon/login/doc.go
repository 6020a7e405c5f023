// Package login keeps the logins of remote servers, and renews them. It is for the
// child of a worker that speaks with such a server (holdline remote), for the commands
// that log in and out, and for those that only look.
//
// Three rules carry it:
//
//  1. One process at a time spends a refresh token, under the lock of its file, and the
//     token's successor is on disk before anything uses it. Servers that rotate take a
//     second use for theft, and end the login.
//  2. No call waits for a person. Without a login it fails at once.
//  3. No secret leaves this package but into a request that needs it: see [Secret].
//
// # Parts
//
//	Store       files of logins, each with its lock, sealed if the user has a key
//	Client      HTTP with guards: which addresses, how much, how long
//	Endpoint    a token endpoint: what is sent there, and what its answers mean
//	Challenge   what a WWW-Authenticate header asks for
//
// A [Target] stands for the address of a server. It names its [Login]: the tokens that
// an authorization server has issued for a resource. Several targets may share one.
package login
