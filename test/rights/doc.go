// Package rights tests, against a real API server, what the credential of one node's agent can do: what its work needs,
// and nothing to other nodes, other programs' fields, or itself. The manifests are those of deploy.
package rights
