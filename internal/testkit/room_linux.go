package testkit

import "syscall"

// room is what the trees of all tests that run at one time may take.
const room = 512 << 20

// hasRoom reports whether a folder's file system has enough space; containers often get very little memory of this
// kind.
func hasRoom(dir string) bool {
	var s syscall.Statfs_t
	return syscall.Statfs(dir, &s) == nil && s.Bavail*uint64(s.Bsize) >= room
}
