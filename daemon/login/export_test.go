package login

// Stop is the first half of [Tokens.Close]: it does not wait.
func (t *Tokens) Stop() { t.stop() }
