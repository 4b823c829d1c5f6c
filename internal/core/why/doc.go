// Package why holds the reason of a refusal as data.
//
// A Reason is a code with the amount that was asked and the best amount that one place offers, made without allocation
// on the hot path. It holds no text: Text renders it from the registry (registry.go), and every surface – pod
// condition, Event, simulate, explain, metric, diagnostics – is rendered from the same value. A Finding adds what only
// the adapter knows (plugin, phase, object); Root selects the cause to report first.
package why
