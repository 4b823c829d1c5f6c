// Package app wires tenon-manager: the webhooks, the controllers of quotas, its health and its metrics.
package app
