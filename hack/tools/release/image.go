package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	root    = "0:0"         // the agent writes files of the node that are root's
	nonroot = "65532:65532" // all others
	passwd  = "root:x:0:0:root:/:/nologin\nnonroot:x:65532:65532:nonroot:/:/nologin\n"
)

// images writes OUT/PROGRAM.tar for each program of Linux: an OCI layout whose one index has an image for each
// architecture. Runtimes import it under the name REGISTRY/PROGRAM:TAG.
func (r *release) images(programs []program) error {
	indexes := map[string]v1.ImageIndex{}
	for _, p := range programs {
		if p.os != "linux" {
			continue
		}
		image, err := r.image(p)
		if err != nil {
			return fmt.Errorf("image of %s: %w", p.file, err)
		}
		index, known := indexes[p.name]
		if !known {
			index = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		}
		indexes[p.name] = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	for name, index := range indexes {
		if err := r.writeIndex(name, index); err != nil {
			return fmt.Errorf("write the image %s: %w", name, err)
		}
	}
	return nil
}

// image has one layer, with the program as its entrypoint.
func (r *release) image(p program) (v1.Image, error) {
	entries, err := r.contents(p)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	entries = append(entries, entry{name: "etc/passwd", mode: 0o644, content: []byte(passwd)})
	if err := writeTar(&content, r.time, entries); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	user := nonroot
	if p.name == "tenon-agent" {
		user = root
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: p.os, Architecture: p.arch, Created: v1.Time{Time: r.time}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: user, Entrypoint: []string{"/" + p.name}, WorkingDir: "/",
			Labels: map[string]string{
				"org.opencontainers.image.title":    p.name,
				"org.opencontainers.image.source":   r.repository,
				"org.opencontainers.image.version":  r.version,
				"org.opencontainers.image.revision": r.revision,
				"org.opencontainers.image.created":  r.time.Format(time.RFC3339),
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "hack/release.sh images"},
	})
}

// writeIndex writes an OCI layout as one file.
func (r *release) writeIndex(name string, index v1.ImageIndex) error {
	folder, err := os.MkdirTemp(r.out, ".layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	l, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	err = l.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          r.registry + "/" + name + ":" + r.tag,
		"org.opencontainers.image.ref.name": r.tag,
	}))
	if err != nil {
		return err
	}
	var entries []entry
	err = filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(folder, file)
		entries = append(entries, entry{name: filepath.ToSlash(below), mode: 0o644, content: content})
		return err
	})
	if err != nil {
		return err
	}
	var all bytes.Buffer
	if err := writeTar(&all, r.time, entries); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name+".tar"), all.Bytes(), 0o644)
}
