package view

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// Journal is a file of what a scheduler read and decided.
type Journal struct {
	Name string `json:"name"` // "" where nothing was written yet
	Gzip []byte `json:"gzip"` // the lines, compressed
	// Earlier is the name of the file before this one; "" where there is none.
	Earlier string `json:"earlier,omitempty"`
}

// JournalOf returns a file with a text.
func JournalOf(name string, text []byte) (j Journal, err error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	if _, err = zipped.Write(text); err == nil {
		err = zipped.Close()
	}
	return Journal{Name: name, Gzip: out.Bytes()}, err
}

// Text returns the lines.
func (j *Journal) Text() ([]byte, error) {
	in, err := gzip.NewReader(bytes.NewReader(j.Gzip))
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	return text, nil
}
