//go:build ignore

// Command bundle writes the pages of the console: index.html, and the script and the style sheet under names that
// change with their content. It is run in the root folder.
//
//	go run -modfile=go.tools.mod ./web/bundle.go FOLDER
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bundle FOLDER")
		os.Exit(2)
	}
	if err := bundle(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func bundle(folder string) error {
	worker, err := build(folder, "web/src/worker.ts", nil)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%q", "/"+filepath.Base(worker[0].Path))
	files, err := build(folder, "web/src/app.tsx", map[string]string{"WORKER": name})
	if err != nil {
		return err
	}
	page, err := os.ReadFile("web/src/index.html")
	if err != nil {
		return err
	}
	written := map[string]bool{"index.html": true}
	text := string(page)
	for _, f := range append(files, worker...) {
		name := filepath.Base(f.Path)
		written[name] = true
		text = strings.ReplaceAll(text, "app"+filepath.Ext(name), name)
	}
	if err := os.WriteFile(filepath.Join(folder, "index.html"), []byte(text), 0o644); err != nil {
		return err
	}
	old, err := os.ReadDir(folder)
	for _, f := range old {
		if !written[f.Name()] {
			err = os.Remove(filepath.Join(folder, f.Name()))
		}
	}
	return err
}

// build bundles a script and what it imports. Each name is replaced in it by the JavaScript that it is defined as.
func build(folder, script string, names map[string]string) ([]api.OutputFile, error) {
	built := api.Build(api.BuildOptions{
		EntryPoints: []string{script}, EntryNames: "[name]-[hash]", Outdir: folder, Write: true, Define: names,
		Bundle: true, Format: api.FormatESModule, Target: api.ES2022, LegalComments: api.LegalCommentsNone,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		JSX: api.JSXAutomatic, JSXImportSource: "preact",
		Alias: map[string]string{
			"preact":               "./web/vendor/preact/preact.mjs",
			"preact/hooks":         "./web/vendor/preact/hooks.mjs",
			"preact/jsx-runtime":   "./web/vendor/preact/jsxRuntime.mjs",
			"@preact/signals":      "./web/vendor/signals/signals.mjs",
			"@preact/signals-core": "./web/vendor/signals-core/signals-core.mjs",
		},
	})
	for _, m := range append(built.Errors, built.Warnings...) {
		if m.Location != nil {
			m.Text = m.Location.File + ": " + m.Text
		}
		return nil, errors.New(m.Text)
	}
	return built.OutputFiles, nil
}
