package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/keyutil"

	"github.com/tenon-project/tenon/internal/local/datadir"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	renewBefore   = 30 * 24 * time.Hour
	// backdate lets machines whose clock runs late trust a new certificate.
	backdate = time.Hour
)

// Authority signs the certificates of one cluster.
type Authority struct {
	dir  string
	now  time.Time
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// Pair is a certificate with its key: as PEM, and as the files that hold it.
type Pair struct {
	Cert, Key         []byte
	CertFile, KeyFile string
}

// Subject is whom a certificate vouches for: a user with groups, or a server with names.
type Subject struct {
	User   string
	Groups []string
	Hosts  []string // DNS names and IP addresses; a certificate with hosts is a serving certificate.
}

// Broken is the error of a file of the authority that cannot be used. Pairs are simply made anew; the authority itself
// and the token key are not, because saved kubeconfigs and tokens depend on them.
type Broken struct {
	File string
	Err  error
}

func (b *Broken) Error() string { return fmt.Sprintf("%s: %v", b.File, b.Err) }

func (b *Broken) Unwrap() error { return b.Err }

// Open loads the authority kept in dir, or makes one where there is none or where it has less than a month to live.
// It returns a *Broken error for files that are there but unusable.
func Open(dir string, now time.Time) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make certificate folder: %w", err)
	}
	a := &Authority{dir: dir, now: now}
	pair, err := a.read("ca")
	if errors.Is(err, fs.ErrNotExist) {
		return a, a.create()
	}
	if err != nil {
		return nil, err
	}
	a.pem = pair.Cert
	if a.cert, a.key, err = pair.parse(); err == nil && !a.cert.IsCA {
		err = errors.New("not the certificate of an authority")
	}
	if err != nil {
		return nil, &Broken{File: pair.CertFile, Err: err}
	}
	if a.expires(a.cert) {
		return a, a.create()
	}
	return a, nil
}

// Certificate returns the authority's own certificate as PEM.
func (a *Authority) Certificate() []byte { return a.pem }

// CertificateFile returns the path of Certificate.
func (a *Authority) CertificateFile() string { return filepath.Join(a.dir, "ca.crt") }

// Issue returns the pair called name, which vouches for s: the kept one where it still does, else a new one.
func (a *Authority) Issue(name string, s Subject) (Pair, error) {
	if kept, err := a.read(name); err == nil && a.vouches(kept, s) {
		return kept, nil
	}
	template := a.template(pkix.Name{CommonName: s.User, Organization: s.Groups}, leafLife)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(s.Hosts) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		template.DNSNames, template.IPAddresses = splitHosts(s.Hosts)
	}
	return a.make(name, template)
}

// TokenKey returns the pair of files that service account tokens are signed and checked with.
func (a *Authority) TokenKey() (Pair, error) {
	kept, err := a.read("service-account")
	if errors.Is(err, fs.ErrNotExist) {
		return a.Issue("service-account", Subject{User: "service-account-signer"})
	}
	if err != nil {
		return Pair{}, err
	}
	if _, err := keyutil.ParsePrivateKeyPEM(kept.Key); err != nil {
		return Pair{}, &Broken{File: kept.KeyFile, Err: err}
	}
	return kept, nil
}

// create makes the authority itself: what signs is nothing yet.
func (a *Authority) create() error {
	template := a.template(pkix.Name{CommonName: "tenon-local"}, authorityLife)
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	template.IsCA = true
	pair, err := a.make("ca", template)
	if err != nil {
		return err
	}
	a.pem = pair.Cert
	a.cert, a.key, err = pair.parse()
	return err
}

func (a *Authority) template(subject pkix.Name, life time.Duration) *x509.Certificate {
	// 127 random bits: positive, and never the same twice.
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(fmt.Sprintf("pki: system randomness: %v", err))
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: a.now.Add(-backdate), NotAfter: a.now.Add(life),
	}
}

// vouches reports whether p is signed by this authority, is not about to expire, and is for s.
func (a *Authority) vouches(p Pair, s Subject) bool {
	cert, _, err := p.parse()
	if err != nil || a.expires(cert) || cert.CheckSignatureFrom(a.cert) != nil {
		return false
	}
	names, addresses := splitHosts(s.Hosts)
	return cert.Subject.CommonName == s.User && sets.New(cert.Subject.Organization...).Equal(sets.New(s.Groups...)) &&
		slices.Equal(cert.DNSNames, names) && slices.EqualFunc(cert.IPAddresses, addresses, net.IP.Equal)
}

func (a *Authority) expires(cert *x509.Certificate) bool {
	return cert.NotAfter.Before(a.now.Add(renewBefore))
}

func (a *Authority) pair(name string) Pair {
	return Pair{CertFile: filepath.Join(a.dir, name+".crt"), KeyFile: filepath.Join(a.dir, name+".key")}
}

func (a *Authority) read(name string) (p Pair, err error) {
	p = a.pair(name)
	if p.Cert, err = os.ReadFile(p.CertFile); err == nil {
		p.Key, err = os.ReadFile(p.KeyFile)
	}
	if err != nil {
		return Pair{}, fmt.Errorf("read certificate or key: %w", err)
	}
	return p, nil
}

// make signs a new key, with itself as long as no authority exists, and stores it before its certificate: a
// certificate on disk always has its key beside it.
func (a *Authority) make(name string, template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make key for %s: %w", name, err)
	}
	parent, signer := a.cert, a.key
	if template.IsCA {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate of %s: %w", name, err)
	}
	p := a.pair(name)
	p.Cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if p.Key, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return Pair{}, fmt.Errorf("encode key of %s: %w", name, err)
	}
	if err := datadir.WriteFile(p.KeyFile, p.Key, 0o600); err != nil {
		return Pair{}, err
	}
	return p, datadir.WriteFile(p.CertFile, p.Cert, 0o600)
}

// parse returns certificate and key, and an error unless they belong together.
func (p Pair) parse() (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, nil, err
	}
	return pair.Leaf, pair.PrivateKey.(crypto.Signer), nil // any key that tls accepts signs
}

func splitHosts(hosts []string) (names []string, addresses []net.IP) {
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			addresses = append(addresses, ip)
			continue
		}
		names = append(names, h)
	}
	return names, addresses
}
