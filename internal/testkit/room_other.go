//go:build !linux

package testkit

func hasRoom(string) bool { return false }
