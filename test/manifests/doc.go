// Package manifests tests, against a real API server, what deploy contains: that it accepts the agent's DaemonSet, and
// that the webhooks answer as promised where the API server asks them.
package manifests
