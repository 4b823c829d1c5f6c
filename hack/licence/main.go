// Command licence lists the licences of the modules that Tenon's binaries link and fails on one that is not allowed.
//
// It reads the licence files of `go list -deps` per binary, not of the whole module graph: what is only tested with is
// not shipped.
package main

import (
	"context"
	"encoding/json"
	"errors"
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
	modules, err := linked()
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

// linked returns module path to folder of everything that the binaries link.
func linked() (map[string]string, error) {
	out, err := exec.CommandContext(context.Background(), "go", "list", "-tags", "nomsgpack", "-deps", "-json=Module",
		"./cmd/...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	modules := map[string]string{}
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

func detect(dir string) string {
	for _, pattern := range []string{"LICENSE*", "LICENCE*", "License*", "license*", "COPYING*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			continue
		}
		for _, file := range files {
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
