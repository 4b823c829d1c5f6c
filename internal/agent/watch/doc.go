// Package watch follows the objects of one node in the API: the Node, its pods, and what the agent publishes of it. It
// notes for how long the API server does not answer.
package watch
