// Package v1alpha1 is the protocol between a runtime proxy and its hook servers, as Koordinator defines it: same
// service, messages and numbers, with the environment of containers that seed 001 asks for. api.proto documents the
// fields.
package v1alpha1
