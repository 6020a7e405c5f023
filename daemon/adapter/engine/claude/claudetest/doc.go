// Package claudetest is what tests and the demo have instead of money: a
// stand-in for the Anthropic Messages API on loopback ([API]), in front of
// which the real Claude Code can run, and a stand-in for Claude Code itself
// ([FakeMain]), which a test binary or the demo becomes when it is executed
// again.
//
// Both are told what to do by the prompt. A prompt may carry a script,
//
//	@@FAKE [step, step, …]
//
// a JSON array of [Step] right behind the word: step k answers the k-th
// request to the model after the message that carries it, and the last step
// repeats. A prompt without a script is answered with a sentence that repeats
// its end.
//
// Nothing of this is linked into holdline itself.
package claudetest
