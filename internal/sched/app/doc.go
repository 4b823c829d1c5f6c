// Package app is tenon-scheduler: kube-scheduler with Tenon's plugins.
//
// Flags and configuration file are kube-scheduler's. Without --config the profile is upstream's default one plus ours,
// under the names of --serve-scheduler-names. What surrounds the scheduling core differs in six places, all visible in
// setup.go:
//
//   - the accounts hear of every event before the scheduler's queue does, so that a pod that an event wakes never meets
//     an account that the event has not reached;
//   - no pod is taken from the queue before nodes, topologies and pods are all known;
//   - no pod is taken from the queue while as many Bindings are on their way as the API server takes at once;
//   - pods of one signature that follow one another are placed by the scores of one pass over the nodes;
//   - a refusal is reported by its root cause, and not again while the cause stays the same;
//   - diagnostics are served beside metrics and health.
package app
