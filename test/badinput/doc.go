// Package badinput is the visible proof of one promise: bad input gets a clear text that names the field, the rule and
// what is allowed, and it changes nothing.
//
//	go test -v ./test/badinput
//
// lists every case by what is bad about it, over all doors by which input comes in: the webhooks, the scheduler's
// command line, configuration and the pods and nodes that it reads (with the webhooks bypassed), the agent, simulate
// and the command line. Each case hands the input in as a user or the API server would, and then looks at what could
// have changed. Cases that need a running cluster want TENON_BIN, as test/system does.
package badinput
