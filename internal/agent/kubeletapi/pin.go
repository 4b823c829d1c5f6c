package kubeletapi

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// pinDir has the serving certificates that a kubelet made for itself or was issued. Only root writes there.
const pinDir = "var/lib/kubelet/pki"

// pinFiles are the certificate that a kubelet signs for itself, and the one that it gets with serverTLSBootstrap.
func pinFiles() []string { return []string{"kubelet.crt", "kubelet-server-current.pem"} }

// maxPinBytes bounds a certificate file.
const maxPinBytes = 1 << 20

// pins returns the certificates that the machine's own files name; none where there are no files.
func pins(root host.Root) ([]*x509.Certificate, error) {
	dir, err := os.OpenRoot(root.Path(pinDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	var all []*x509.Certificate
	for _, name := range pinFiles() {
		text, err := readPin(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", root.Path(pinDir, name), err)
		}
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			if block.Type != "CERTIFICATE" {
				continue // the private key stands in the same file
			}
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", root.Path(pinDir, name), err)
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// readPin reads a file of dir, through a link to a file beside it: the kubelet's link is absolute, and below a Root its
// target is somewhere else.
func readPin(dir *os.Root, name string) ([]byte, error) {
	if target, err := dir.Readlink(name); err == nil {
		name = filepath.Base(target)
	}
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxPinBytes))
}

// verifier decides whether a server is the kubelet of a node.
type verifier struct {
	root  host.Root
	roots *x509.CertPool // the cluster's authority; nil for none
	node  string
	host  string
}

// ErrUntrusted is answered for a server that neither the cluster's authority nor the machine's files vouch for. The
// agent's token was not sent.
var ErrUntrusted = errors.New("nothing vouches for the kubelet's serving certificate")

// verify takes the certificate that the machine's files have, and one of the cluster's authority that names the node.
func (v verifier) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return fmt.Errorf("%w: there is none", ErrUntrusted)
	}
	leaf := state.PeerCertificates[0]
	pinned, err := pins(v.root)
	if slices.ContainsFunc(pinned, leaf.Equal) {
		return nil
	}
	signed := v.signed(leaf, state.PeerCertificates[1:])
	if signed == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %q: %w; and %w", ErrUntrusted, leaf.Subject, err, signed)
	}
	return fmt.Errorf("%w: %q is not in %s of %s; and %w", ErrUntrusted, leaf.Subject, pinFiles(), v.root.Path(pinDir),
		signed)
}

// signed returns why a certificate is not the cluster's word for this node; nil when it is. The certificates that the
// cluster signs for kubelets name the node in their subject.
func (v verifier) signed(leaf *x509.Certificate, others []*x509.Certificate) error {
	if v.roots == nil {
		return errors.New("the API client's configuration has no certificate authority")
	}
	between := x509.NewCertPool()
	for _, c := range others {
		between.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: v.roots, Intermediates: between}); err != nil {
		return err
	}
	if leaf.Subject.CommonName == "system:node:"+v.node || leaf.VerifyHostname(v.node) == nil {
		return nil
	}
	return leaf.VerifyHostname(v.host)
}
