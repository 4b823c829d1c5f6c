package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name    string
	mode    int64
	file    string // where the content is read from
	content []byte
}

// archives writes for each program and platform an archive and an SPDX document.
func (r *release) archives(programs []program) error {
	for _, p := range programs {
		entries, err := r.contents(p)
		if err != nil {
			return err
		}
		name, write := fmt.Sprintf("%s_%s_%s_%s", p.name, r.version, p.os, p.arch), writeTarGz
		file := name + ".tar.gz"
		if p.os == "windows" {
			write, file = writeZip, name+".zip"
		}
		var packed bytes.Buffer
		if err := write(&packed, r.time, entries); err != nil {
			return fmt.Errorf("pack %s: %w", file, err)
		}
		bill, err := r.bill(p, entries[0].content)
		if err != nil {
			return fmt.Errorf("list the modules of %s: %w", p.file, err)
		}
		for file, content := range map[string][]byte{file: packed.Bytes(), name + ".spdx.json": bill} {
			if err := os.WriteFile(filepath.Join(r.out, file), content, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeTarGz(w io.Writer, at time.Time, entries []entry) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(z, at, entries); err != nil {
		return err
	}
	return z.Close()
}

// writeTar writes entries by name, of owner 0, with one time.
func writeTar(w io.Writer, at time.Time, entries []entry) error {
	t := tar.NewWriter(w)
	for _, e := range sorted(entries) {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: at,
			Format: tar.FormatUSTAR,
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(e.content); err != nil {
			return err
		}
	}
	return t.Close()
}

func writeZip(w io.Writer, at time.Time, entries []entry) error {
	z := zip.NewWriter(w)
	for _, e := range sorted(entries) {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(e.mode))
		f, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := f.Write(e.content); err != nil {
			return err
		}
	}
	return z.Close()
}

func sorted(entries []entry) []entry {
	return slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return cmp.Compare(a.name, b.name) })
}
