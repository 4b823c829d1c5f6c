// Package hint runs the kubelet's own merge beside Tenon's on equal hint lists, for equality and for speed:
//
//	go test .
//	go test -run '^$' -bench .
//
// The kubelet takes seconds for one merge of three resources on eight nodes, and hours beyond; there only the policy
// single-numa-node is run.
package hint
