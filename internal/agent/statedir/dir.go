package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// Dir is the path of the folder of one machine's agent.
type Dir string

// Of returns the folder below a Root.
func Of(root host.Root) Dir { return Dir(root.Path("var/lib/tenon-agent")) }

// Path returns the path of a file in the folder.
func (d Dir) Path(name string) string { return filepath.Join(string(d), name) }

// Read returns the text of a file; "" for one that is missing.
func (d Dir) Read(name string) (string, error) {
	text, err := os.ReadFile(d.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(text), err
}

// Write makes a file hold a text, or leaves it as it was. An equal text is not written again.
func (d Dir) Write(name, text string) error { return d.write(name, text, nil) }

// write is Write that finishes the new file before it takes the place of the old one; nil for nothing to do.
func (d Dir) write(name, text string, finish func(file string) error) error {
	file := d.Path(name)
	if old, err := os.ReadFile(file); err == nil && string(old) == text {
		return nil
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return err
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		return err
	}
	if finish != nil {
		if err := finish(temporary); err != nil {
			return err
		}
	}
	return os.Rename(temporary, file)
}

// syncFile makes the disk hold what was written to a file.
func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Save is Write of a value as JSON. Its error names the file.
func (d Dir) Save(name string, value any) error { return d.save(name, value, nil) }

// SaveSynced is Save of a value that the disk must hold before the caller goes on.
func (d Dir) SaveSynced(name string, value any) error { return d.save(name, value, syncFile) }

func (d Dir) save(name string, value any, finish func(file string) error) error {
	text, err := json.Marshal(value)
	if err == nil {
		err = d.write(name, string(text), finish)
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", d.Path(name), err)
	}
	return nil
}

// Load reads what Save wrote into a value; false when the file is missing. Its error names the file.
func (d Dir) Load(name string, into any) (found bool, err error) {
	text, err := d.Read(name)
	if err != nil || text == "" {
		return false, err
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return false, fmt.Errorf("%s: %w", d.Path(name), err)
	}
	return true, nil
}

// Remove removes a file that may be missing.
func (d Dir) Remove(name string) error {
	if err := os.Remove(d.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
