package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Sizes of a ring. A file may be larger than its share where its snapshot is.
const (
	ringSize = 256 << 20
	fileSize = 32 << 20
)

// filePattern matches the files of a ring. Their names sort by age.
const filePattern = "journal-*.jsonl"

// ErrFull is the error of a record for which the ring has no room: the objects of the cluster alone fill it.
var ErrFull = errors.New("the journal has no room for the objects of the cluster")

// ring is files in a folder, of which the oldest are removed. Not safe for concurrent use.
//
// Invariant: size is the sum of closed, and size + written is at most limit after each write. Only closed files are
// removed: where the current one alone would exceed the limit, a write is ErrFull.
type ring struct {
	// folder has the files, limit is the most bytes of all files together, and part the size at which a file is long.
	folder      string
	limit, part int64
	closed      []sized // oldest first
	size        int64   // of the closed ones
	// file is the current one; nil before the first. out buffers what is written to it.
	file    *os.File
	out     *bufio.Writer
	written int64 // in file
	// chain is the checksum of the lines of the current file.
	chain chain
}

// sized is a file of the ring with its length in bytes.
type sized struct {
	path string
	size int64
}

// Files returns the files of the journal in a folder, the oldest first.
func Files(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, filePattern))
	slices.Sort(files)
	return files, err
}

// ReadFile returns the whole lines of a file in a folder, and the names of that file and of the one before it: "" where
// there is none. An empty name stands for the newest file.
func ReadFile(folder, name string) (found, earlier string, text []byte, err error) {
	files, err := Files(folder)
	i := len(files) - 1
	if name != "" {
		i = slices.IndexFunc(files, func(path string) bool { return filepath.Base(path) == name })
	}
	if err != nil || i < 0 {
		return "", "", nil, err
	}
	if i > 0 {
		earlier = filepath.Base(files[i-1])
	}
	text, err = os.ReadFile(files[i])
	return filepath.Base(files[i]), earlier, text[:bytes.LastIndexByte(text, '\n')+1], err
}

// openRing makes a ring in a folder. What is in it counts.
func openRing(folder string, limit, part int64) (*ring, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the journal: %w", err)
	}
	r := &ring{folder: folder, limit: limit, part: part}
	files, err := Files(folder)
	if err != nil {
		return nil, fmt.Errorf("list the journal: %w", err)
	}
	for _, path := range files {
		if info, err := os.Stat(path); err == nil {
			r.closed = append(r.closed, sized{path, info.Size()})
			r.size += info.Size()
		}
	}
	return r, nil
}

// begin starts a file.
func (r *ring) begin(at time.Time) error {
	if err := r.end(); err != nil {
		return err
	}
	path := filepath.Join(r.folder, fmt.Sprintf("journal-%020d.jsonl", at.UnixNano()))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("begin a file of the journal: %w", err)
	}
	r.file, r.out, r.written, r.chain = file, bufio.NewWriterSize(file, 1<<16), 0, 0
	return nil
}

// end closes the file.
func (r *ring) end() error {
	if r.file == nil {
		return nil
	}
	err := errors.Join(r.out.Flush(), r.file.Close())
	r.closed, r.size = append(r.closed, sized{r.file.Name(), r.written}), r.size+r.written
	r.file, r.out = nil, nil
	if err != nil {
		return fmt.Errorf("end a file of the journal: %w", err)
	}
	return nil
}

// write adds a record, and removes the oldest files that leave it no room.
func (r *ring) write(text []byte) error {
	line := r.chain.seal(text)
	for r.size+r.written+int64(len(line)) > r.limit {
		if len(r.closed) == 0 {
			return ErrFull
		}
		oldest := r.closed[0]
		if err := os.Remove(oldest.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the oldest file of the journal: %w", err)
		}
		r.closed, r.size = r.closed[1:], r.size-oldest.size
	}
	if len(line) > r.out.Available() { // a process that is killed leaves whole lines
		if err := r.out.Flush(); err != nil {
			return fmt.Errorf("write the journal: %w", err)
		}
	}
	n, err := r.out.Write(line)
	r.written += int64(n)
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

// isLong reports whether the file has its size, beside a snapshot of a length.
func (r *ring) isLong(snapshot int64) bool { return r.written > max(r.part, 2*snapshot) }

// flush writes what is in memory, if a file is open.
func (r *ring) flush() error {
	if r.file == nil {
		return nil
	}
	return r.out.Flush()
}
