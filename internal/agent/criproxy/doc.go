// Package criproxy stands between a kubelet and a container runtime that has no NRI: a CRI endpoint that passes every
// call through, byte for byte, but for the six around which it asks hook servers.
package criproxy
