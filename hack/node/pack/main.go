package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	out := flag.String("o", "", "file to write")
	arch := flag.String("arch", "amd64", "architecture of the programs, as Go calls it")
	flag.Parse()
	if err := run(*out, *arch, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(out, arch string, arguments []string) error {
	if out == "" || len(arguments) == 0 {
		return fmt.Errorf("usage: pack -o FILE NAME:TAG=PROGRAM…")
	}
	images := make([]image, 0, len(arguments))
	for _, a := range arguments {
		name, program, found := strings.Cut(a, "=")
		if !found || !strings.Contains(name, ":") {
			return fmt.Errorf("image %q: want NAME:TAG=PROGRAM", a)
		}
		text, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		images = append(images, image{name: name, arch: arch, file: filepath.Base(program), program: text})
	}
	return writeFile(out, func(w io.Writer) error { return writeArchive(w, images) })
}

// writeFile makes a file that is whole or not there.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".pack-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone when it was renamed
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
