// Package examples embeds the manifests that the documentation and the demo of a local cluster use.
package examples
