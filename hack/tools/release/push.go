package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// values are the values of the chart that name the image of a program. The other programs are not in the chart.
var values = map[string]string{
	"tenon-scheduler": "scheduler.image.digest", "tenon-manager": "manager.image.digest",
	"tenon-descheduler": "descheduler.image.digest", "tenon-agent": "agent.image.digest",
}

// push copies each image OUT/PROGRAM.tar to the registry as REGISTRY/PROGRAM:TAG, with its signature where there is a
// key, and prints the digests and the command that installs them. Credentials are those of Docker's configuration.
func (r *release) push() error {
	files, err := filepath.Glob(filepath.Join(r.out, "*.tar"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s contains no image: build them first", r.out)
	}
	install := []string{
		"helm install tenon " + r.chart, "--namespace tenon-system", "--create-namespace",
		"--set image.registry=" + r.registry,
	}
	for _, file := range files {
		program := strings.TrimSuffix(filepath.Base(file), ".tar")
		digest, err := r.pushImage(program, file)
		if err != nil {
			return fmt.Errorf("push %s: %w", program, err)
		}
		fmt.Fprintf(r.stdout, "%s/%s:%s@%s\n", r.registry, program, r.tag, digest)
		if value := values[program]; value != "" {
			install = append(install, "--set "+value+"="+digest.String())
		}
	}
	fmt.Fprintf(r.stdout, "\nInstall them with:\n\n  %s\n", strings.Join(install, " \\\n    "))
	return nil
}

func (r *release) pushImage(program, file string) (v1.Hash, error) {
	reference, err := name.NewTag(r.registry+"/"+program+":"+r.tag, name.StrictValidation)
	if err != nil {
		return v1.Hash{}, err
	}
	folder, err := os.MkdirTemp("", "layout-")
	if err != nil {
		return v1.Hash{}, err
	}
	defer os.RemoveAll(folder)
	if err := unpack(file, folder); err != nil {
		return v1.Hash{}, err
	}
	all, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return v1.Hash{}, err
	}
	list, err := all.IndexManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	if len(list.Manifests) != 1 {
		return v1.Hash{}, fmt.Errorf("%s contains %d indexes instead of one", file, len(list.Manifests))
	}
	digest := list.Manifests[0].Digest
	index, err := all.ImageIndex(digest)
	if err != nil {
		return v1.Hash{}, err
	}
	options := []remote.Option{remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := remote.WriteIndex(reference, index, options...); err != nil {
		return v1.Hash{}, err
	}
	if r.key == nil {
		return digest, nil
	}
	signature, err := r.imageSignature(reference.Context(), digest)
	if err != nil {
		return v1.Hash{}, err
	}
	return digest, remote.Write(signatureTag(reference.Context(), digest), signature, options...)
}

// unpack writes the files of an archive that this program has made into a folder.
func unpack(file, folder string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for all := tar.NewReader(f); ; {
		h, err := all.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.Dir(h.Name), 0o750); err != nil {
			return err
		}
		content, err := io.ReadAll(all)
		if err != nil {
			return err
		}
		if err := root.WriteFile(h.Name, content, 0o600); err != nil {
			return err
		}
	}
}

// krew writes tenon.yaml, with which Krew installs kubectl-tenon: one entry for each of its archives.
func (r *release) krew([]program) error {
	archives, err := filepath.Glob(filepath.Join(r.out, "kubectl-tenon_"+r.version+"_*"))
	if err != nil {
		return err
	}
	archives = slices.DeleteFunc(archives, func(file string) bool { return strings.HasSuffix(file, ".spdx.json") })
	if len(archives) == 0 {
		return fmt.Errorf("%s contains no archive of kubectl-tenon %s", r.out, r.version)
	}
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: tenon
spec:
  version: %s
  homepage: %s
  shortDescription: Explain and inspect CPU, NUMA and GPU placement
  description: |
    Shows why a pod is where it is or waits, down to the core, the NUMA node and the slice of a GPU.
  platforms:
`, r.version, r.repository)
	for _, file := range archives {
		sum, err := checksum(file)
		if err != nil {
			return err
		}
		base := filepath.Base(file)
		platform := strings.TrimPrefix(base, "kubectl-tenon_"+r.version+"_")
		platform = strings.TrimSuffix(strings.TrimSuffix(platform, ".tar.gz"), ".zip")
		goos, arch, _ := strings.Cut(platform, "_")
		bin := "kubectl-tenon"
		if goos == "windows" {
			bin += ".exe"
		}
		fmt.Fprintf(&text, `  - selector:
      matchLabels: {os: %s, arch: %s}
    uri: %s/releases/download/%s/%s
    sha256: %s
    bin: %s
    files:
      - {from: %s, to: .}
      - {from: LICENSE, to: .}
`, goos, arch, r.repository, r.version, base, sum, bin, bin)
	}
	return os.WriteFile(filepath.Join(r.out, "tenon.yaml"), []byte(text.String()), 0o644)
}
