// Package runtimeproxy has the configuration file of tenon-runtime-proxy. It needs nothing of Kubernetes, as the proxy
// does not.
package runtimeproxy
