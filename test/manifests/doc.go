// Package manifests tests, against a real API server, what deploy tells it: that it takes the agent's DaemonSet, and that
// the webhooks answer as promised where the API server asks them.
package manifests
