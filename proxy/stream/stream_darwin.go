package stream

import "os"

// pollable is for systems that can open a pipe a second time.
func pollable(*os.File, int) (file *os.File, undo func()) { return nil, func() {} }
