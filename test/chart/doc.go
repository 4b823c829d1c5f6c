// Package chart tests what Helm's own program does with the chart against a real API server: installing, a second
// release, upgrading, taking over from the plain manifests, and uninstalling.
package chart
