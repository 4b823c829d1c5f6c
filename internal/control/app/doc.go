// Package app wires tenon-manager: the webhooks, its health and its metrics.
package app
