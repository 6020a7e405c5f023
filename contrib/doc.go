// Package contrib holds the files that make other programs work with holdline: units of
// service managers, and what clients have in their configurations. The units are
// embedded, so that `holdline install` writes what a packager copies. The package does
// nothing but fill them in.
//
// Directory doc has the pages for users. The tests of this package check what they name:
// links, commands and flags, tests, keys, make's targets, paths and variables.
package contrib
