// Package deploy embeds the manifests that a cluster needs before Tenon's processes run. They are written for a cluster
// in which the manager is the service tenon-manager in the namespace tenon-system.
package deploy
