// Package app is the command line of tenon-runtime-proxy.
package app
