package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
)

// watched are the folders in which a kubelet replaces files, below the Root, and the files that matter in them.
func watched() map[string][]string {
	return map[string][]string{
		path.Dir(cpuStateFile):                 {path.Base(cpuStateFile), path.Base(memoryStateFile)},
		path.Dir(deviceStateFile):              {path.Base(deviceStateFile)},
		path.Dir(cpuStateFile) + "/" + podsDir: {podsSocket},
	}
}

// The socket of PodResources, which a kubelet makes anew when it starts.
const podsDir, podsSocket = "pod-resources", "kubelet.sock"

// watchRetry is the time between two looks for a folder that was missing.
const watchRetry = 10 * time.Second

// WatchKubelet calls changed whenever a kubelet has replaced a record, and with restarted when it has made its socket
// anew, until ctx ends; it returns nil then. Folders that are missing are looked for again. The error is one of the kernel's:
// no inotify instance is left, or so.
func WatchKubelet(ctx context.Context, root Root, changed func(restarted bool)) error {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch the kubelet's files: %w", err)
	}
	w := &watch{root: root, fd: fd, events: os.NewFile(uintptr(fd), "inotify"), folders: map[int32]string{}}
	defer w.events.Close()
	stop := context.AfterFunc(ctx, func() { _ = w.events.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for ctx.Err() == nil {
		missing, err := w.addAll()
		if err != nil {
			return fmt.Errorf("watch the kubelet's files: %w", err)
		}
		limit := time.Time{}
		if missing {
			limit = time.Now().Add(watchRetry)
		}
		if err := w.events.SetReadDeadline(limit); err != nil {
			return fmt.Errorf("watch the kubelet's files: %w", err)
		}
		if ctx.Err() != nil { // stop may have come before
			break
		}
		seen, restarted, err := w.next()
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("watch the kubelet's files: %w", err)
		}
		if seen {
			changed(restarted)
		}
	}
	return nil
}

// watch is one inotify instance.
type watch struct {
	root    Root
	fd      int
	events  *os.File
	folders map[int32]string // by watch descriptor
}

// addAll adds the folders that are not watched yet, and reports whether one is missing.
func (w *watch) addAll() (missing bool, err error) {
	have := map[string]bool{}
	for _, folder := range w.folders {
		have[folder] = true
	}
	for folder := range watched() {
		if have[folder] {
			continue
		}
		id, err := syscall.InotifyAddWatch(w.fd, w.root.Path(folder),
			syscall.IN_CREATE|syscall.IN_MOVED_TO|syscall.IN_CLOSE_WRITE|syscall.IN_DELETE_SELF|syscall.IN_MOVE_SELF|syscall.IN_ONLYDIR)
		switch {
		case errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR):
			missing = true
		case err != nil:
			return false, fmt.Errorf("%s: %w", w.root.Path(folder), err)
		default:
			w.folders[int32(id)] = folder
		}
	}
	return missing, nil
}

// next waits for events and reports whether they are about files that matter. The kernel gives whole events.
func (w *watch) next() (seen, restarted bool, err error) {
	buffer := make([]byte, 64*(syscall.SizeofInotifyEvent+syscall.NAME_MAX+1))
	n, err := w.events.Read(buffer)
	if err != nil {
		return false, false, err
	}
	for events := buffer[:n]; len(events) >= syscall.SizeofInotifyEvent; {
		id, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
		end := syscall.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		if end > len(events) {
			break
		}
		name := string(bytes.TrimRight(events[syscall.SizeofInotifyEvent:end], "\x00"))
		events = events[end:]
		s, r := w.judge(id, mask, name)
		seen, restarted = seen || s, restarted || r
	}
	return seen, restarted, nil
}

func (w *watch) judge(id int32, mask uint32, name string) (seen, restarted bool) {
	if mask&syscall.IN_Q_OVERFLOW != 0 {
		return true, true // what was lost may have been anything
	}
	folder, known := w.folders[id]
	switch {
	case !known:
		return false, false
	case mask&(syscall.IN_DELETE_SELF|syscall.IN_MOVE_SELF|syscall.IN_IGNORED) != 0:
		delete(w.folders, id)
		if mask&syscall.IN_MOVE_SELF != 0 {
			_, _ = syscall.InotifyRmWatch(w.fd, uint32(id)) // the folder is another one now
		}
		return true, true
	}
	for _, file := range watched()[folder] {
		if name == file {
			return true, strings.HasSuffix(folder, podsDir)
		}
	}
	return false, false
}
