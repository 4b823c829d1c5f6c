package certificate

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/api/annotation"
)

const (
	life = 90 * 24 * time.Hour
	// skew is how far the clocks of a cluster may differ.
	skew = time.Hour
	// mostAuthorities ends a series of requested rotations, as of a tool that sets the annotation again and again.
	mostAuthorities = 8
)

// Values of the annotation. The last one is written here: the old authorities are dropped when next is promoted.
const (
	rotateNow     = "now"
	rotateReplace = "replace"
	replacing     = "replacing"
)

// manager is the server whose pair a Keeper serves.
const manager = "manager"

// hosts are the servers, and the DNS names by which clients reach them.
func hosts(namespace string) map[string]string {
	return map[string]string{
		manager: "tenon-manager." + namespace + ".svc", "scheduler": "tenon-scheduler." + namespace + ".svc",
		"descheduler": "tenon-descheduler." + namespace + ".svc", "console": "tenon-console." + namespace + ".svc",
	}
}

// pairs are the certificates and keys of servers as PEM, by the key in the Secret: SERVER.crt, SERVER.key.
type pairs map[string][]byte

// state is what the Secret holds, at a time.
type state struct {
	hosts       map[string]string // by server
	authorities []*x509.Certificate
	active      pairs  // what is served
	next        pairs  // what is served once its authority is published; empty = none
	rotate      string // the annotation
	// signer and pending are the authorities of active and of next, and among authorities; nil where a server has no
	// pair that clients would accept.
	signer, pending *x509.Certificate
}

// advance returns what the Secret should hold after the step that is due, given every bundle that is published. It
// returns an equal state when none is. An error is of a request that the result does not grant.
func (s state) advance(published [][]*x509.Certificate, now time.Time) (state, error) {
	out := s
	if s.signer == nil { // the Secret does not say what replicas serve: whom clients trust now remains trusted
		out.authorities = trusted(now, append(published, s.authorities)...)
	}
	if s.pending == nil {
		out.next = nil
	}
	issue := s.pending == nil && (s.signer == nil || !now.Before(due(s.signer)))
	var refused error
	switch out.rotate = ""; s.rotate {
	case "":
	case rotateNow:
		if issue = issue || len(out.authorities) < mostAuthorities; !issue {
			refused = fmt.Errorf("%s: %d authorities are valid, at most %d may be: use %q to drop the earlier ones",
				annotation.RotateCertificates, len(out.authorities), mostAuthorities, rotateReplace)
		}
	case rotateReplace:
		issue, out.rotate = true, replacing
	case replacing:
		issue, out.rotate = issue || s.pending == nil, replacing
	default:
		refused = fmt.Errorf("%s: %q is not allowed: use %q or %q", annotation.RotateCertificates, s.rotate, rotateNow,
			rotateReplace)
	}
	without := func(b []*x509.Certificate) bool { return !has(b, s.pending) }
	switch {
	case issue:
		if err := out.issue(now); err != nil {
			return s, err
		}
	case s.pending != nil && !slices.ContainsFunc(published, without):
		out.active, out.next = s.next, nil
		if s.rotate == replacing {
			out.authorities, out.rotate = []*x509.Certificate{s.pending}, ""
		}
	}
	return out, refused
}

// due is when an authority and its pairs are replaced.
func due(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}

// issue makes a new authority and the pairs of all servers, to be served next. The authority's key ends here.
func (s *state) issue(now time.Time) error {
	authority, key, err := certify(&x509.Certificate{
		Subject: pkix.Name{CommonName: "tenon-ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil, now)
	if err != nil {
		return err
	}
	s.authorities, s.next = trusted(now, s.authorities, []*x509.Certificate{authority}), pairs{}
	for server, host := range s.hosts {
		leaf, own, err := certify(&x509.Certificate{
			Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}, authority, key, now)
		if err != nil {
			return err
		}
		der, err := x509.MarshalPKCS8PrivateKey(own)
		if err != nil {
			return fmt.Errorf("encode the key of %s: %w", server, err)
		}
		s.next[server+".crt"] = encode(leaf)
		s.next[server+".key"] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	return nil
}

// certify makes a key, and a certificate of it that parent signs; without a parent, itself.
func certify(c, parent *x509.Certificate, signer *ecdsa.PrivateKey, now time.Time,
) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the key of %s: %w", c.Subject.CommonName, err)
	}
	if parent == nil {
		parent, signer = c, key
	}
	c.NotBefore, c.NotAfter = now.Add(-skew), now.Add(life)
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer) // with a random serial number
	if err != nil {
		return nil, nil, fmt.Errorf("sign the certificate of %s: %w", c.Subject.CommonName, err)
	}
	c, err = x509.ParseCertificate(der)
	return c, key, err
}

// authorityOf returns the authority that signed the pairs; nil where a server has none that clients would accept.
func (s state) authorityOf(p pairs, now time.Time) (authority *x509.Certificate) {
	roots := x509.NewCertPool()
	for _, a := range s.authorities {
		roots.AddCert(a)
	}
	for server, host := range s.hosts {
		own, err := tls.X509KeyPair(p[server+".crt"], p[server+".key"])
		if err != nil {
			return nil
		}
		chains, err := own.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now})
		if err != nil {
			return nil
		}
		top := chains[0][len(chains[0])-1]
		if authority != nil && !authority.Equal(top) {
			return nil
		}
		authority = top
	}
	return authority
}

// trusted returns the authorities of bundles that are valid, oldest first, each once. Of what could not have been made
// here nothing is trusted.
func trusted(now time.Time, bundles ...[]*x509.Certificate) []*x509.Certificate {
	var out []*x509.Certificate
	for _, c := range slices.Concat(bundles...) {
		if c.IsCA && !has(out, c) && c.NotAfter.Add(skew).After(now) && c.NotBefore.Before(now.Add(skew)) &&
			c.NotAfter.Sub(c.NotBefore) <= life+skew {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *x509.Certificate) int {
		return cmp.Or(a.NotBefore.Compare(b.NotBefore), bytes.Compare(a.Raw, b.Raw))
	})
	return out
}

func has(bundle []*x509.Certificate, c *x509.Certificate) bool {
	return slices.ContainsFunc(bundle, c.Equal)
}

// decode reads a Secret's data. What cannot be read, and authorities that have expired, are left out.
func decode(hosts map[string]string, data map[string][]byte, rotate string, now time.Time) state {
	s := state{hosts: hosts, rotate: rotate, active: pairs{}, next: pairs{}}
	s.authorities = trusted(now, parse(data[bundleKey]))
	for key, text := range data {
		if next, ok := strings.CutPrefix(key, "next."); ok {
			s.next[next] = text
		} else if key != bundleKey {
			s.active[key] = text
		}
	}
	s.signer, s.pending = s.authorityOf(s.active, now), s.authorityOf(s.next, now)
	return s
}

// data is the inverse of decode.
func (s state) data() map[string][]byte {
	out := maps.Clone(s.active)
	out[bundleKey] = encode(s.authorities...)
	for key, text := range s.next {
		out["next."+key] = text
	}
	return out
}

// parse reads the certificates of a bundle; none where a part of it cannot be read.
func parse(bundle []byte) (out []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			if len(bytes.TrimSpace(bundle)) > 0 {
				return nil
			}
			return out
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil
		}
		out = append(out, c)
	}
}

// encode is the inverse of parse.
func encode(bundle ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range bundle {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return out
}
