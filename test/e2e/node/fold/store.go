package fold

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Store keeps, by container id, the virtual sets that were asked for. It is a folder of files, so that several
// processes can share it: whoever writes to the kernel does it inside Change.
type Store struct{ Dir string }

// Set is a virtual cpuset. "" is what was never asked for: the container has what its parent has.
type Set struct {
	CPUs string `json:"cpus"`
	Mems string `json:"mems"`
}

// Record is what is known of one container.
type Record struct {
	Set
	// Next is a change that is under way: the kernel has Set or Next.
	Next *Set `json:"next,omitempty"`
	// Log has every set that was in force, the oldest first, with who asked for it.
	Log []Entry `json:"log"`
}

// Entry is one line of a Record's log.
type Entry struct {
	By string `json:"by"`
	Set
}

// Get returns the record of a container; false where nothing was asked for.
func (s Store) Get(id string) (Record, bool, error) {
	file, err := s.file(id)
	if err != nil {
		return Record{}, false, err
	}
	r, err := read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	return r, err == nil, err
}

// Change asks for other sets for a container: ask gets the sets in force and returns the wanted ones, then write hands
// them to the kernel. When write fails the old sets remain in force. Changes of one container exclude each other.
func (s Store) Change(id, author string, ask func(Set) Set, write func(Set) error) error {
	file, err := s.file(id)
	if err != nil {
		return err
	}
	unlock, err := s.lock(id)
	if err != nil {
		return err
	}
	defer unlock()
	old, err := read(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old.Next = nil // of a writer that was killed
	next := ask(old.Set)
	during := old
	during.Next = &next
	if err := save(file, during); err != nil {
		return err
	}
	if err := write(next); err != nil {
		return errors.Join(err, save(file, old))
	}
	return save(file, Record{Set: next, Log: append(old.Log, Entry{By: author, Set: next})})
}

// file refuses ids that are no plain file name.
func (s Store) file(id string) (string, error) {
	if id == "" || id != filepath.Base(id) || strings.HasPrefix(id, ".") {
		return "", fmt.Errorf("%q is not a container id", id)
	}
	return filepath.Join(s.Dir, id+".json"), nil
}

func (s Store) lock(id string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.Dir, id+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock container %s: %w", id, err)
	}
	return func() { f.Close() }, nil
}

func read(file string) (Record, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Record{}, err
	}
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// save replaces the file in one step: readers take no lock.
func save(file string, r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
