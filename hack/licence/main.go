// Command licence lists the licences of the modules that Tenon's binaries link and fails on one that is not allowed.
//
//	licence [-tags TAGS] [-out FOLDER] [PACKAGE…]
//
// It reads the licence files of `go list -deps` per binary, not of the whole module graph: what is only tested with is
// not shipped. GOOS and GOARCH choose the platform. With -out it writes what a release carries: THIRD_PARTY_NOTICES
// with every licence and notice, and licences with a line "module licence" for each module.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// allowed to link. MPL-2.0 only for the modules named in mpl, unmodified.
var allowed = []string{"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unlicense", "Zlib", "CC0-1.0"}

var mpl = []string{"github.com/cyphar/filepath-securejoin", "cyphar.com/go-pathrs"}

// marks are phrases that only one licence has, the more specific first.
var marks = []struct{ phrase, licence string }{
	{"Mozilla Public License", "MPL-2.0"},
	{"GNU AFFERO", "AGPL"},
	{"GNU LESSER", "LGPL"},
	{"GNU GENERAL PUBLIC", "GPL"},
	{"Business Source License", "BUSL"},
	{"Apache License", "Apache-2.0"},
	{"apache.org/licenses/LICENSE-2.0", "Apache-2.0"},
	{"Permission is hereby granted, free of charge", "MIT"},
	{"Permission to use, copy, modify, and/or distribute", "ISC"},
	{"Permission to use, copy, modify, and distribute", "ISC"},
	{"Neither the name", "BSD-3-Clause"},
	{"Redistribution and use in source and binary forms", "BSD-2-Clause"},
	{"This is free and unencumbered software", "Unlicense"},
}

func main() {
	tags := flag.String("tags", "nomsgpack", "build `tags`")
	out := flag.String("out", "", "`folder` to write THIRD_PARTY_NOTICES and licences to")
	flag.Parse()
	packages := flag.Args()
	if len(packages) == 0 {
		packages = []string{"./cmd/..."}
	}
	modules, err := linked(*tags, packages)
	if err == nil && *out != "" {
		err = write(*out, modules)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bad := 0
	for _, m := range sortedKeys(modules) {
		licence := detect(modules[m])
		ok := slices.Contains(allowed, licence) || licence == "MPL-2.0" && slices.Contains(mpl, m)
		if !ok {
			fmt.Printf("%s: licence %q is not on the allow-list\n", m, licence)
			bad++
		}
	}
	fmt.Printf("%d linked modules, %d refused\n", len(modules), bad)
	if bad > 0 {
		os.Exit(1)
	}
}

// linked returns module path to folder of everything that the binaries link, with Go's own library as std.
func linked(tags string, packages []string) (map[string]string, error) {
	ctx := context.Background()
	std, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	out, err := exec.CommandContext(ctx, "go", append([]string{"list", "-tags", tags, "-deps", "-json=Module"},
		packages...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	modules := map[string]string{"std": strings.TrimSpace(string(std))}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Module *struct {
				Path, Dir string
				Main      bool
			}
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return modules, nil
		} else if err != nil {
			return nil, fmt.Errorf("read go list: %w", err)
		}
		if p.Module != nil && !p.Module.Main {
			modules[p.Module.Path] = p.Module.Dir
		}
	}
}

// write puts the texts of all modules into one file, each once, and their licences into another.
func write(out string, modules map[string]string) error {
	byText := map[string][]string{} // modules by text
	var texts []string
	var list strings.Builder
	for _, m := range sortedKeys(modules) {
		fmt.Fprintf(&list, "%s %s\n", m, detect(modules[m]))
		for _, file := range files(modules[m], "NOTICE*") {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			text := strings.TrimSpace(string(content))
			if byText[text] == nil {
				texts = append(texts, text)
			}
			byText[text] = append(byText[text], m)
		}
	}
	var notices strings.Builder
	notices.WriteString("This program contains the modules named here, under the licences below their names.\n")
	for _, text := range texts {
		fmt.Fprintf(&notices, "\n%s\n\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(byText[text], "\n"), text)
	}
	return errors.Join(os.WriteFile(filepath.Join(out, "THIRD_PARTY_NOTICES"), []byte(notices.String()), 0o644),
		os.WriteFile(filepath.Join(out, "licences"), []byte(list.String()), 0o644))
}

// files are a module's licence files, and those of further patterns.
func files(dir string, more ...string) []string {
	var all []string
	for _, pattern := range append([]string{"LICENSE*", "LICENCE*", "License*", "license*", "COPYING*"}, more...) {
		found, _ := filepath.Glob(filepath.Join(dir, pattern)) // no pattern is malformed
		for _, file := range found {
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
				all = append(all, file)
			}
		}
	}
	return all
}

func detect(dir string) string {
	for _, file := range files(dir) {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		flat := strings.Join(strings.Fields(string(text)), " ")
		for _, m := range marks {
			if strings.Contains(flat, m.phrase) {
				return m.licence
			}
		}
	}
	return "unknown"
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
