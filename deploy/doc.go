// Package deploy embeds the manifests of Tenon: what the chart in deploy/chart renders with its default values in the
// namespace tenon-system.
package deploy
