package machine

import (
	"os"
	"path"
	"path/filepath"
)

// store creates the files of a tree below a folder. Files with one content share one inode, and so do symbolic links
// with one target: of the thousands of files of a big machine a few hundred differ, and a new inode costs many times a
// new name. So a file of a machine is changed by replacing it, never by writing into it.
type store struct {
	root  folder
	made  map[string]bool  // folders that exist
	taken map[string]bool  // names that were created
	first map[inode]string // where an inode has its first name
}

// folder is where the files of a tree are created: an *os.Root for files of others, a plainFolder for our own.
type folder interface {
	MkdirAll(name string, mode os.FileMode) error
	WriteFile(name string, content []byte, mode os.FileMode) error
	Symlink(target, name string) error
	Link(old, name string) error
	Remove(name string) error
	Stat(name string) (os.FileInfo, error)
}

// plainFolder is a folder by its path. It follows links that lead out of it, in a fifth of an os.Root's time.
type plainFolder string

func (f plainFolder) in(name string) string { return filepath.Join(string(f), name) }

func (f plainFolder) MkdirAll(name string, mode os.FileMode) error {
	return os.MkdirAll(f.in(name), mode)
}

func (f plainFolder) WriteFile(name string, content []byte, mode os.FileMode) error {
	return os.WriteFile(f.in(name), content, mode)
}

func (f plainFolder) Symlink(target, name string) error { return os.Symlink(target, f.in(name)) }

func (f plainFolder) Link(old, name string) error           { return os.Link(f.in(old), f.in(name)) }
func (f plainFolder) Remove(name string) error              { return os.Remove(f.in(name)) }
func (f plainFolder) Stat(name string) (os.FileInfo, error) { return os.Stat(f.in(name)) }

// inode is what names may share.
type inode struct {
	link    bool
	content string // a symbolic link's is its target
}

func newStore(root folder) *store {
	return &store{root: root, made: map[string]bool{}, taken: map[string]bool{}, first: map[inode]string{}}
}

// file creates or replaces the file name.
func (s *store) file(name, content string) error {
	return s.create(name, inode{content: content},
		func() error { return s.root.WriteFile(name, []byte(content), 0o644) })
}

// link creates the symbolic link name.
func (s *store) link(name, target string) error {
	return s.create(name, inode{true, target}, func() error { return s.root.Symlink(target, name) })
}

// folder creates the folder name and those above it.
func (s *store) folder(name string) error {
	if s.made[name] {
		return nil
	}
	if err := s.root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	s.made[name] = true
	return nil
}

func (s *store) create(name string, i inode, anew func() error) error {
	if err := s.folder(path.Dir(name)); err != nil {
		return err
	}
	if s.taken[name] { // writing into it would change its other names too
		if err := s.root.Remove(name); err != nil {
			return err
		}
	}
	s.taken[name] = true
	// A file system without hard links, or one that has had enough of them, gets a file of its own.
	if first, ok := s.first[i]; ok && s.root.Link(first, name) == nil {
		return nil
	}
	if err := anew(); err != nil {
		return err
	}
	s.first[i] = name
	return nil
}
