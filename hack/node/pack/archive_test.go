package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// entries reads a tar.
func entries(t *testing.T, text []byte) (headers []*tar.Header, contents map[string][]byte) {
	t.Helper()
	contents = map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, h)
		contents[h.Name] = b
	}
}

func archive(t *testing.T, images ...image) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := writeArchive(&out, images); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestAnArchiveHoldsWhatARuntimeImports(t *testing.T) {
	t.Parallel()
	text := archive(t,
		image{name: "localhost/a:1", arch: "amd64", file: "a", program: []byte("program a")},
		image{name: "localhost/b:2", arch: "arm64", file: "b", program: []byte("program b")})
	headers, contents := entries(t, text)
	if !slices.IsSortedFunc(headers, func(a, b *tar.Header) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the entries are not sorted")
	}
	var manifests []manifest
	if err := json.Unmarshal(contents["manifest.json"], &manifests); err != nil {
		t.Fatal(err)
	}
	var tags []string
	for i, m := range manifests {
		tags = append(tags, m.RepoTags...)
		var c config
		if err := json.Unmarshal(contents[m.Config], &c); err != nil {
			t.Fatalf("configuration %s: %v", m.Config, err)
		}
		file := []string{"a", "b"}[i]
		want := config{
			Architecture: []string{"amd64", "arm64"}[i], OS: "linux",
			Config: runConfig{User: "65535:65535", Entrypoint: []string{"/" + file}, WorkingDir: "/"},
			RootFS: rootFS{Type: "layers", DiffIDs: []string{"sha256:" + digest(contents[m.Layers[0]])}},
		}
		if diff := cmp.Diff(want, c); diff != "" {
			t.Errorf("configuration (-want +got):\n%s", diff)
		}
		layer, files := entries(t, contents[m.Layers[0]])
		if len(layer) != 1 || layer[0].Mode != 0o755 || string(files[file]) != "program "+file {
			t.Errorf("layer of %s: %v %q", file, layer, files)
		}
	}
	if diff := cmp.Diff([]string{"localhost/a:1", "localhost/b:2"}, tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	for _, h := range headers {
		if !h.ModTime.Equal(time.Unix(0, 0)) || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s carries time %v, owner %d:%d %q", h.Name, h.ModTime, h.Uid, h.Gid, h.Uname)
		}
	}
}

// The programs are built in two folders, as on two machines.
func TestEqualSourcesGiveEqualBytes(t *testing.T) {
	t.Parallel()
	module, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	var archives [2][]byte
	for i := range archives {
		dir := t.TempDir()
		for _, name := range []string{"pause", "probe"} {
			if err := os.CopyFS(filepath.Join(dir, name),
				os.DirFS(filepath.Join(module, "test/e2e/node/image", name))); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module image\n\ngo 1.26\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var arguments []string
		for _, name := range []string{"pause", "probe"} {
			build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags",
				"-s -w", "-o", filepath.Join(dir, "bin", name), "./"+name)
			build.Dir = dir
			build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS=linux")
			if text, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			arguments = append(arguments, "localhost/"+name+":1="+filepath.Join(dir, "bin", name))
		}
		out := filepath.Join(dir, "images.tar")
		if err := run(out, "amd64", arguments); err != nil {
			t.Fatal(err)
		}
		if archives[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two builds of the same sources differ")
	}
}

func TestBadArgumentsAreNamedAndLeaveNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"no images":        {nil, "usage"},
		"no program":       {[]string{"localhost/a:1"}, `image "localhost/a:1": want NAME:TAG=PROGRAM`},
		"no tag":           {[]string{"localhost/a=/bin/sh"}, "want NAME:TAG=PROGRAM"},
		"a missing binary": {[]string{"localhost/a:1=/nowhere/a"}, "/nowhere/a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			err := run(filepath.Join(dir, "out.tar"), "amd64", test.arguments)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
