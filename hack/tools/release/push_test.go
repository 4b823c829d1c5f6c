package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// newKey writes a private key and returns its file and its public part.
func newKey(t *testing.T, curve elliptic.Curve) (file string, public *ecdsa.PublicKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, &key.PublicKey
}

// verify holds that text is the signature of content in base64.
func verify(t *testing.T, public *ecdsa.PublicKey, content []byte, text string) {
	t.Helper()
	signature, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	if !ecdsa.VerifyASN1(public, sum[:], signature) {
		t.Errorf("%q does not sign %q", text, content)
	}
	content = append(bytes.Clone(content), 'x')
	sum = sha256.Sum256(content)
	if ecdsa.VerifyASN1(public, sum[:], signature) {
		t.Errorf("%q signs other content too", text)
	}
}

func TestImagesArePushedWithTheirSignatures(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	r := built(t)
	r.registry = strings.TrimPrefix(server.URL, "http://") + "/team/tenon"
	file, public := newKey(t, elliptic.P256())
	var err error
	if r.key, err = readKey(file); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	r.stdout, r.chart = &printed, "oci://example.com/charts/tenon"
	pack(t, r, "images", "push")

	for _, program := range []string{"tenon-agent", "kubectl-tenon"} {
		tag, err := name.NewTag(r.registry + "/" + program + ":" + r.tag)
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(tag)
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		var platforms []string
		for _, m := range manifest.Manifests {
			platforms = append(platforms, m.Platform.String())
		}
		if got := strings.Join(platforms, " "); got != "linux/amd64 linux/arm64" {
			t.Errorf("%s was pushed for %q", program, got)
		}
		digest, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if line := tag.Name() + "@" + digest.String(); !strings.Contains(printed.String(), line) {
			t.Errorf("%q is not printed in\n%s", line, &printed)
		}
		set := "--set agent.image.digest=" + digest.String()
		if want := program == "tenon-agent"; strings.Contains(printed.String(), set) != want {
			t.Errorf("%q is printed: %v, want %v", set, !want, want)
		}
		checkSignature(t, public, tag.Context(), digest)
	}
}

// checkSignature reads the signature of an image as cosign does.
func checkSignature(t *testing.T, public *ecdsa.PublicKey, repository name.Repository, digest v1.Hash) {
	t.Helper()
	image, err := remote.Image(repository.Tag("sha256-" + digest.Hex + ".sig"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != "application/vnd.dev.cosign.simplesigning.v1+json" {
		t.Fatalf("the signature has the layers %v", manifest.Layers)
	}
	layer, err := image.LayerByDigest(manifest.Layers[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	payload, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, public, payload, manifest.Layers[0].Annotations["dev.cosignproject.cosign/signature"])
	var claim map[string]any
	if err := json.Unmarshal(payload, &claim); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"identity": map[string]any{"docker-reference": repository.Name()},
		"image":    map[string]any{"docker-manifest-digest": digest.String()},
		"type":     "cosign container image signature",
	}
	if got := fmt.Sprint(claim["critical"]); got != fmt.Sprint(want) {
		t.Errorf("the signature claims %s, want %s", got, fmt.Sprint(want))
	}
}

func TestChecksumsAreSignedAndKrewFindsTheArchives(t *testing.T) {
	r := built(t)
	file, public := newKey(t, elliptic.P256())
	var err error
	if r.key, err = readKey(file); err != nil {
		t.Fatal(err)
	}
	pack(t, r, "archives", "krew", "checksums", "sign")
	files := read(t, r.out)
	verify(t, public, []byte(files["checksums.txt"]), files["checksums.txt.sig"])
	if strings.Contains(files["checksums.txt"], "checksums.txt") {
		t.Error("checksums.txt lists itself or its signature")
	}
	for _, platform := range []string{"linux_amd64", "linux_arm64", "windows_amd64"} {
		name := "kubectl-tenon_v1.2.3_" + platform + ".tar.gz"
		if strings.HasPrefix(platform, "windows") {
			name = strings.TrimSuffix(name, ".tar.gz") + ".zip"
		}
		entry := fmt.Sprintf("uri: https://example.com/owner/tenon/releases/download/v1.2.3/%s\n    sha256: %x\n",
			name, sha256.Sum256([]byte(files[name])))
		if !strings.Contains(files["tenon.yaml"], entry) {
			t.Errorf("tenon.yaml lacks\n%s\nit is\n%s", entry, files["tenon.yaml"])
		}
	}
	if !strings.Contains(files["tenon.yaml"], "\n  homepage: https://example.com/owner/tenon\n") {
		t.Errorf("tenon.yaml has another homepage than its repository:\n%s", files["tenon.yaml"])
	}
	if n := strings.Count(files["tenon.yaml"], "uri:"); n != len(platforms) {
		t.Errorf("tenon.yaml has %d archives instead of %d", n, len(platforms))
	}
}

// "openssl ecparam -genkey" writes the curve before the key.
func TestAKeyOfSEC1IsRead(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	text := slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 0}}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readKey(file); err != nil || !got.Equal(key) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestWhatCannotBePushedOrSignedIsRefused(t *testing.T) {
	p384, _ := newKey(t, elliptic.P384())
	text, list := filepath.Join(t.TempDir(), "text"), filepath.Join(t.TempDir(), "list")
	const broken = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
	if err := os.WriteFile(list, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(text, []byte("a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		p384: "no key of the curve P-256", text: "not in the PEM format",
		list: "in PKCS #8 or SEC 1 is needed", text + "x": "no such file",
	} {
		if _, err := readKey(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the key %s: %v, want %q", file, err, want)
		}
	}
	r := &release{out: t.TempDir(), registry: "example.com/tenon", tag: "devel", version: "v1.2.3", stdout: io.Discard}
	for what, want := range map[string]string{
		"push": "contains no image", "sign": "-key is needed", "krew": "contains no archive",
	} {
		var err error
		switch what {
		case "push":
			err = r.push()
		case "sign":
			err = r.signChecksums(nil)
		case "krew":
			err = r.krew(nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	r = built(t)
	r.registry, r.stdout = "no registry!", io.Discard
	pack(t, r, "images")
	if err := r.push(); err == nil || !strings.Contains(err.Error(), "no registry!") {
		t.Errorf("an invalid registry: %v", err)
	}
}
