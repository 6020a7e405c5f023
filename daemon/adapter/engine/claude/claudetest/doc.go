// Package claudetest lets tests and the demo run consults without cost. It has a stand-in for
// the Anthropic Messages API on loopback ([API]), which the real Claude Code can use, and a
// stand-in for Claude Code itself ([FakeMain]), as which a test binary or the demo executes
// itself.
//
// The prompt tells both what to do. It may carry a script,
//
//	@@FAKE [step, step, …]
//
// a JSON array of [Step] right behind the word. Step k answers the k-th request to the model
// after the message that carries the script; the last step repeats. [Script] sets one for a
// prompt that carries none. Another prompt without a script is answered with a sentence that
// repeats its end.
//
// Nothing of this is linked into holdline itself.
package claudetest
