package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// WriteFile replaces a file in one step: a reader, or a start after a crash, sees the old text or the new one. A file
// has one writer at a time.
func WriteFile(path string, text []byte, mode os.FileMode) error {
	temporary := path + ".new"
	err := os.WriteFile(temporary, text, mode)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.RemoveAll(temporary))
	}
	return nil
}

// Corrupt is the error of a file of the data folder that cannot be read as what it is.
type Corrupt struct {
	File string
	Err  error
}

func (c *Corrupt) Error() string { return fmt.Sprintf("%s is damaged: %v", c.File, c.Err) }

func (c *Corrupt) Unwrap() error { return c.Err }

// readJSON leaves v alone when the file is absent.
func (d Dir) readJSON(name string, v any) error {
	text, err := os.ReadFile(d.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read data folder: %w", err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return &Corrupt{File: d.path(name), Err: err}
	}
	return nil
}

func (d Dir) writeJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return WriteFile(d.path(name), append(text, '\n'), 0o600)
}
