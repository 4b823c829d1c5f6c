package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// The socket of PodResources, which a kubelet makes anew when it starts.
const podsDir, podsSocket = "pod-resources", "kubelet.sock"

// watchRetry is the time between two looks for a folder that was missing.
const watchRetry = 10 * time.Second

// WatchKubelet calls changed whenever a kubelet has replaced a record or a device plugin has removed its socket, and
// with restarted when it has made its own socket anew, until ctx ends; it returns nil then. Folders that are missing
// are looked for again. The error is one of the kernel's: no inotify instance is left, or so.
func WatchKubelet(ctx context.Context, root Root, changed func(restarted bool)) error {
	files := map[string]bool{ // by path: whether it is the socket
		root.Path(cpuStateFile): false, root.Path(memoryStateFile): false, root.Path(deviceStateFile): false,
		root.Path(path.Dir(cpuStateFile), podsDir, podsSocket): true,
	}
	var folders []string
	for file := range files {
		folders = append(folders, filepath.Dir(file))
	}
	slices.Sort(folders)
	folders = slices.Compact(folders)
	return watch(ctx, "the kubelet's files", folders, 0, func(e fsnotify.Event) {
		restarted, matters := files[e.Name]
		switch {
		case e.Name == "" || slices.Contains(folders, e.Name): // what happened may have been anything
			changed(true)
		case matters && (e.Has(fsnotify.Create) || e.Has(fsnotify.Write)):
			changed(restarted)
		case e.Has(fsnotify.Remove) && path.Ext(e.Name) == ".sock":
			changed(false)
		}
	})
}

// WatchGroups calls made whenever a group appears in one of the folders of a cgroup tree or up to three levels below
// it, with the path of the group, "" when the kernel lost some, until ctx ends; it returns nil then. Folders that are
// missing are looked for again.
func WatchGroups(ctx context.Context, folders []string, made func(group string)) error {
	return watch(ctx, "cgroups", folders, 2, func(e fsnotify.Event) {
		if e.Name == "" || e.Has(fsnotify.Create) {
			made(e.Name)
		}
	})
}

// watch calls seen with what happens in folders, and in those so many levels below them, until ctx ends. The zero event
// is for events that the kernel lost.
func watch(ctx context.Context, what string, folders []string, levels int, seen func(fsnotify.Event)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("watch %s: %w", what, err)
		}
	}()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	var retry <-chan time.Time
	lost := false // the kernel lost events: folders may have been made that are not watched
	for again := true; ; {
		if again {
			known, missed := w.WatchList(), lost
			if lost = false; missed {
				known = nil
			}
			retry = nil
			for _, dir := range folders {
				if slices.Contains(known, dir) {
					continue
				}
				if err := watchBelow(w, dir, levels); isMissingFolder(err) {
					retry = time.After(watchRetry)
				} else if err != nil {
					return err
				}
			}
			if missed {
				seen(fsnotify.Event{})
			}
		}
		select {
		case e := <-w.Events:
			again = slices.Contains(folders, e.Name)
			if e.Has(fsnotify.Create) && levels > 0 {
				err := watchBelow(w, e.Name, levels-depthBelow(folders, e.Name))
				if err != nil && !isMissingFolder(err) {
					return err
				}
			}
			seen(e)
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
			again, lost = true, true
		case <-retry:
			again = true
		case <-ctx.Done():
			return nil
		}
	}
}

// watchBelow adds a folder and those so many levels below it.
func watchBelow(w *fsnotify.Watcher, dir string, levels int) error {
	if levels < 0 {
		return nil
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return errors.Join(err, fs.ErrNotExist)
	}
	if err := w.Add(dir); err != nil || levels == 0 {
		return err
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := watchBelow(w, filepath.Join(dir, e.Name()), levels-1); err != nil && !isMissingFolder(err) {
			return err
		}
	}
	return err
}

// depthBelow returns how many levels a path lies below the first of the folders that it lies in.
func depthBelow(folders []string, name string) int {
	for depth := 0; name != "/" && name != "."; depth++ {
		if slices.Contains(folders, name) {
			return depth
		}
		name = filepath.Dir(name)
	}
	return 0
}

func isMissingFolder(err error) bool { return isMissing(err) || errors.Is(err, syscall.ENOTDIR) }
