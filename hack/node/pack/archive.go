package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
)

// user runs the programs: a number that owns nothing.
const user = "65535:65535"

// image is one program that becomes an image.
type image struct {
	name    string // with its tag
	arch    string
	file    string // of the program in the image's root
	program []byte
}

// config is the part of an image's configuration that runtimes need.
type config struct {
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       runConfig `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
}

type runConfig struct {
	User       string   `json:"User"`
	Entrypoint []string `json:"Entrypoint"`
	WorkingDir string   `json:"WorkingDir"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// manifest is an entry of manifest.json of a Docker archive.
type manifest struct {
	Config   string   `json:"Config"`
	RepoTags []string `json:"RepoTags"`
	Layers   []string `json:"Layers"`
}

// writeArchive writes a Docker archive, the format that every runtime's import reads.
func writeArchive(w io.Writer, images []image) error {
	files := map[string][]byte{}
	var manifests []manifest
	for _, i := range images {
		layer, err := tarball(map[string][]byte{i.file: i.program}, 0o755)
		if err != nil {
			return err
		}
		text, err := json.Marshal(config{
			Architecture: i.arch, OS: "linux",
			Config: runConfig{User: user, Entrypoint: []string{"/" + i.file}, WorkingDir: "/"},
			RootFS: rootFS{Type: "layers", DiffIDs: []string{"sha256:" + digest(layer)}},
		})
		if err != nil {
			return err
		}
		m := manifest{
			Config: digest(text) + ".json", RepoTags: []string{i.name},
			Layers: []string{digest(layer) + ".tar"},
		}
		files[m.Config], files[m.Layers[0]] = text, layer
		manifests = append(manifests, m)
	}
	text, err := json.Marshal(manifests)
	if err != nil {
		return err
	}
	files["manifest.json"] = text
	all, err := tarball(files, 0o644)
	if err != nil {
		return err
	}
	_, err = w.Write(all)
	return err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// tarball holds files by name, sorted, without times or owners.
func tarball(files map[string][]byte, mode int64) ([]byte, error) {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(files[name])),
			Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
