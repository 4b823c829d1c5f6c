package machine

import (
	"os"
	"path"
)

// store creates the files of a tree below a folder. Files with one content share one inode, and so do symbolic links
// with one target: of the thousands of files of a big machine a few hundred differ, and a new inode costs many times a
// new name. So a file of a machine is changed by replacing it, never by writing into it.
type store struct {
	root  *os.Root
	made  map[string]bool  // folders that exist
	taken map[string]bool  // names that were created
	first map[inode]string // where an inode has its first name
}

type inode struct {
	link    bool
	content string // a symbolic link's is its target
}

func newStore(root *os.Root) *store {
	return &store{root: root, made: map[string]bool{}, taken: map[string]bool{}, first: map[inode]string{}}
}

func (s *store) file(name, content string) error {
	return s.create(name, inode{content: content},
		func() error { return s.root.WriteFile(name, []byte(content), 0o644) })
}

func (s *store) link(name, target string) error {
	return s.create(name, inode{true, target}, func() error { return s.root.Symlink(target, name) })
}

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
