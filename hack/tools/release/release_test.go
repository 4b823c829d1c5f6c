package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
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
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/spdx/tools-golang/json"
)

var platforms = []string{"linux_amd64", "linux_arm64", "windows_amd64"}

// built is a folder with tiny programs, compiled there.
func built(t *testing.T) *release {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/tiny\n\ngo 1.26\n")
	write("main.go", "package main\n\nfunc main() { println(1) }\n")
	write("LICENSE", "the licence")
	for _, platform := range platforms {
		goos, arch, _ := strings.Cut(platform, "_")
		write("in/"+platform+"/THIRD_PARTY_NOTICES", "notices of "+platform)
		write("in/"+platform+"/licences", "std BSD-3-Clause\n")
		for _, name := range []string{"tenon-agent", "kubectl-tenon"} {
			if goos == "windows" {
				name += ".exe"
			}
			build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false",
				"-ldflags", "-s -w", "-o", filepath.Join(dir, "in", platform, "bin", name), ".")
			build.Dir = dir
			build.Env = append(build.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS="+goos, "GOARCH="+arch)
			if text, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
		}
	}
	return &release{
		version: "v1.2.3", revision: "c42a8db", time: time.Unix(1795365034, 0).UTC(),
		registry: "example.com/tenon", tag: "1.2", repository: "https://example.com/owner/tenon",
		in: filepath.Join(dir, "in"), out: filepath.Join(dir, "out"), licence: filepath.Join(dir, "LICENSE"),
	}
}

func pack(t *testing.T, r *release, what ...string) {
	t.Helper()
	for _, w := range what {
		if err := r.run(w); err != nil {
			t.Fatal(err)
		}
	}
}

// read are the files of a folder.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

// untar returns the files of an archive with their modes, and holds that they are sorted, of one time and of root.
func untar(t *testing.T, r *release, content io.Reader) (files map[string]string, modes map[string]int64) {
	t.Helper()
	files, modes = map[string]string{}, map[string]int64{}
	last := ""
	for all := tar.NewReader(content); ; {
		h, err := all.Next()
		if errors.Is(err, io.EOF) {
			return files, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(all)
		if err != nil {
			t.Fatal(err)
		}
		if h.Name <= last || !h.ModTime.Equal(r.time) || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s after %q has time %v, owner %d:%d %q", h.Name, last, h.ModTime, h.Uid, h.Gid, h.Uname)
		}
		last, files[h.Name], modes[h.Name] = h.Name, string(text), h.Mode
	}
}

// The programs are compiled in two folders, as on two machines.
func TestEqualSourcesGiveEqualBytes(t *testing.T) {
	for _, what := range []string{"images", "archives"} {
		first, second := built(t), built(t)
		pack(t, first, what)
		pack(t, second, what)
		if a, b := read(t, first.out), read(t, second.out); len(a) == 0 || !cmp.Equal(a, b) {
			t.Errorf("%s differ, or are none: %d and %d files", what, len(a), len(b))
		}
	}
}

func TestAnImageHasTheProgramAlone(t *testing.T) {
	r := built(t)
	pack(t, r, "images")
	for name, user := range map[string]string{"tenon-agent": "0:0", "kubectl-tenon": "65532:65532"} {
		f, err := os.Open(filepath.Join(r.out, name+".tar"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files, _ := untar(t, r, f)
		folder := t.TempDir()
		for file, text := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, file)), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		top, err := layout.ImageIndexFromPath(folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(top); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		manifest, err := top.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		imported := manifest.Manifests[0].Annotations["io.containerd.image.name"]
		if want := "example.com/tenon/" + name + ":1.2"; imported != want || len(manifest.Manifests) != 1 {
			t.Errorf("%s is imported as %q, want %q; manifests: %d", name, imported, want, len(manifest.Manifests))
		}
		index, err := top.ImageIndex(manifest.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImages(t, r, name, user, index)
	}
}

func checkImages(t *testing.T, r *release, name, user string, index v1.ImageIndex) {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range manifest.Manifests {
		platform := m.Platform.OS + "_" + m.Platform.Architecture
		found = append(found, platform)
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		c, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		labels := c.Config.Labels
		if c.Config.User != user || !slices.Equal(c.Config.Entrypoint, []string{"/" + name}) ||
			c.Architecture != m.Platform.Architecture || !c.Created.Equal(r.time) ||
			labels["org.opencontainers.image.version"] != r.version ||
			labels["org.opencontainers.image.source"] != r.repository ||
			labels["org.opencontainers.image.revision"] != r.revision {
			t.Errorf("%s for %s: %+v", name, platform, c)
		}
		layers, err := image.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("%d layers: %v", len(layers), err)
		}
		content, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()
		_, modes := untar(t, r, content)
		want := map[string]int64{name: 0o755, "LICENSE": 0o644, "THIRD_PARTY_NOTICES": 0o644, "etc/passwd": 0o644}
		if diff := cmp.Diff(want, modes); diff != "" {
			t.Errorf("%s for %s (-want +got):\n%s", name, platform, diff)
		}
	}
	if want := []string{"linux_amd64", "linux_arm64"}; !slices.Equal(found, want) {
		t.Errorf("%s is for %v, want %v", name, found, want)
	}
}

func TestArchivesHaveProgramsLicencesAndChecksums(t *testing.T) {
	r := built(t)
	pack(t, r, "archives", "checksums")
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "checksums.txt")
	check.Dir = r.out
	if text, err := check.CombinedOutput(); err != nil || strings.Count(string(text), ": OK\n") != 12 {
		t.Errorf("%v, want 12 files:\n%s", err, text)
	}
	all := read(t, r.out)
	z, err := gzip.NewReader(strings.NewReader(all["tenon-agent_v1.2.3_linux_arm64.tar.gz"]))
	if err != nil {
		t.Fatal(err)
	}
	files, modes := untar(t, r, z)
	if diff := cmp.Diff(map[string]int64{"tenon-agent": 0o755, "LICENSE": 0o644, "THIRD_PARTY_NOTICES": 0o644},
		modes); diff != "" || files["THIRD_PARTY_NOTICES"] != "notices of linux_arm64" {
		t.Errorf("modes (-want +got):\n%s", diff)
	}
	packed := all["kubectl-tenon_v1.2.3_windows_amd64.zip"]
	archive, err := zip.NewReader(strings.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range archive.File {
		names = append(names, f.Name)
	}
	if want := []string{"LICENSE", "THIRD_PARTY_NOTICES", "kubectl-tenon.exe"}; !slices.Equal(names, want) {
		t.Errorf("the archive for Windows has %v, want %v", names, want)
	}
}

func TestTheBillListsWhatIsLinked(t *testing.T) {
	r := built(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	text, err := r.bill(program{name: "tenon-agent", os: "linux", arch: "amd64", file: self}, content)
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	licences, versions := map[string]string{}, map[string]string{}
	for _, p := range document.Packages {
		licences[p.PackageName], versions[p.PackageName] = p.PackageLicenseDeclared, p.PackageVersion
	}
	if diff := cmp.Diff(map[string]string{
		"tenon-agent": "Apache-2.0", "std": "BSD-3-Clause", "github.com/spdx/tools-golang": unknown,
	},
		map[string]string{
			"tenon-agent": licences["tenon-agent"], "std": licences["std"],
			"github.com/spdx/tools-golang": licences["github.com/spdx/tools-golang"],
		}); diff != "" {
		t.Errorf("licences (-want +got):\n%s", diff)
	}
	if versions["tenon-agent"] != "v1.2.3" || !strings.HasPrefix(versions["github.com/spdx/tools-golang"], "v0.") {
		t.Errorf("versions: %v", versions)
	}
	if got := len(document.Relationships); got != len(versions) {
		t.Errorf("%d relationships for %d packages", got, len(versions))
	}
}

// A build takes minutes to an hour: a key that cannot sign is refused before it.
func TestAKeyThatCannotSignIsRefusedBeforeTheBuild(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	release := exec.CommandContext(t.Context(), "bash", "../../release.sh", "archives")
	release.Env = append(release.Environ(), "VERSION=v0.1.0", "SOURCE_DATE_EPOCH=0", "SIGNING_KEY="+out+".pem",
		"OUT="+out, "PROGRAMS=none")
	text, err := release.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "no such file") {
		t.Errorf("%v, want the key refused:\n%s", err, text)
	}
	if _, err := os.Stat(out); err == nil {
		t.Errorf("the key was read after the build:\n%s", text)
	}
}

// A release's images have its tag, and so has the chart that is packed with them.
func TestTheTagOfTheImages(t *testing.T) {
	for environment, want := range map[string]string{
		"VERSION=v0.1.0": "v0.1.0", "VERSION=v1.2.3-rc.1": "v1.2.3-rc.1", "VERSION=v0.1.0-3-g1234567890ab": "devel",
		"VERSION=v0.1.0-dirty": "devel", "VERSION=1234567890ab": "devel", "VERSION=v0.1.0 TAG=edge": "edge",
	} {
		name := exec.CommandContext(t.Context(), "bash", "../../release.sh", "name", "tenon-agent")
		name.Env = append(name.Environ(), strings.Fields("TAG= REGISTRY= "+environment)...)
		got, err := name.Output()
		if err != nil || string(got) != "localhost/tenon-agent:"+want+"\n" {
			t.Errorf("%s: %q, %v; want the tag %s", environment, got, err, want)
		}
	}
}

func TestBadInputIsNamed(t *testing.T) {
	for what, want := range map[string]string{
		"wheels": `unknown step "wheels": use key, images, archives, krew, checksums, sign or push`,
		"images": "OS_ARCH/bin contains no programs",
	} {
		r := &release{in: t.TempDir(), out: t.TempDir()}
		if err := r.run(what); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want one with %q", what, err, want)
		}
	}
}
