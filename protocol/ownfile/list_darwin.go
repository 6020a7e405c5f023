package ownfile

// listLetsWrite returns false: access control lists of macOS do not show in a mode, and are not looked at.
func listLetsWrite(string) bool { return false }
