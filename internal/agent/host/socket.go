package host

import (
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"
)

// Socket identifies one of the sockets that a path has over time. Sockets can be compared.
type Socket struct {
	inode uint64
	// Made is when it was made, in UTC.
	Made time.Time
}

// PodResourcesSocket returns the socket of the kubelet's PodResources, which a kubelet makes anew when it starts; false
// while there is none.
func PodResourcesSocket(root Root) (Socket, bool) {
	s, err := os.Lstat(root.Path(path.Join(path.Dir(cpuStateFile), podsDir, podsSocket)))
	if err != nil || s.Mode().Type() != fs.ModeSocket {
		return Socket{}, false
	}
	made := Socket{Made: s.ModTime().UTC()}
	if stat, ok := s.Sys().(*syscall.Stat_t); ok {
		made.inode = stat.Ino
	}
	return made, true
}
