package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Media type and annotation of a signature of an image, as cosign reads them.
const (
	signedType       = types.MediaType("application/vnd.dev.cosign.simplesigning.v1+json")
	signedAnnotation = "dev.cosignproject.cosign/signature"
)

// readKey reads an unencrypted private key of the curve P-256, in PKCS #8 as "openssl genpkey -algorithm EC" writes
// it, or in SEC 1 as "openssl ecparam -genkey" does. Its public key serves "cosign verify --key" and "openssl dgst
// -verify".
func readKey(file string) (*ecdsa.PrivateKey, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(content)
	for block != nil && block.Type == "EC PARAMETERS" {
		block, rest = pem.Decode(rest)
	}
	if block == nil {
		return nil, fmt.Errorf("%s is not in the PEM format", file)
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return checkCurve(key, file)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: an unencrypted key in PKCS #8 or SEC 1 is needed", file, err)
	}
	private, _ := key.(*ecdsa.PrivateKey)
	return checkCurve(private, file)
}

// checkCurve refuses nil, and a key of another curve than P-256.
func checkCurve(private *ecdsa.PrivateKey, file string) (*ecdsa.PrivateKey, error) {
	if private == nil || private.Curve.Params().BitSize != 256 {
		return nil, fmt.Errorf("%s contains no key of the curve P-256", file)
	}
	return private, nil
}

// sign returns the signature of content in base64, as "cosign sign-blob" writes it.
func (r *release) sign(content []byte) (string, error) {
	sum := sha256.Sum256(content)
	signature, err := ecdsa.SignASN1(rand.Reader, r.key, sum[:])
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(signature), nil
}

// signChecksums writes checksums.txt.sig beside checksums.txt, and with it signs every file of the release.
func (r *release) signChecksums([]program) error {
	if r.key == nil {
		return errors.New("-key is needed to sign")
	}
	file := filepath.Join(r.out, sums)
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	signature, err := r.sign(content)
	if err != nil {
		return err
	}
	return os.WriteFile(file+".sig", []byte(signature), 0o644)
}

// imageSignature is the image that "cosign verify" reads: one layer that names the digest, and its signature.
func (r *release) imageSignature(repository name.Repository, digest v1.Hash) (v1.Image, error) {
	var claim struct {
		Critical struct {
			Identity struct {
				Reference string `json:"docker-reference"`
			} `json:"identity"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
			Type string `json:"type"`
		} `json:"critical"`
		Optional map[string]string `json:"optional"`
	}
	claim.Critical.Identity.Reference = repository.Name()
	claim.Critical.Image.Digest = digest.String()
	claim.Critical.Type = "cosign container image signature"
	var content bytes.Buffer
	if err := json.NewEncoder(&content).Encode(claim); err != nil {
		return nil, err
	}
	payload := bytes.TrimSpace(content.Bytes())
	signature, err := r.sign(payload)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(image, mutate.Addendum{
		Layer: static.NewLayer(payload, signedType), Annotations: map[string]string{signedAnnotation: signature},
	})
}

// signatureTag is the tag under which "cosign verify" looks for the signature of a digest.
func signatureTag(repository name.Repository, digest v1.Hash) name.Tag {
	return repository.Tag(digest.Algorithm + "-" + digest.Hex + ".sig")
}
