package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/testkit"
)

var (
	epoch  = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	server = Subject{User: "server", Hosts: []string{"localhost", "127.0.0.1", "::1"}}
)

func open(t *testing.T, dir string, now time.Time) *Authority {
	t.Helper()
	a, err := Open(dir, now)
	if err != nil {
		t.Fatalf("Open(%s): %v", dir, err)
	}
	return a
}

func issue(t *testing.T, a *Authority, name string, s Subject) Pair {
	t.Helper()
	p, err := a.Issue(name, s)
	if err != nil {
		t.Fatalf("Issue(%s): %v", name, err)
	}
	return p
}

func TestCertificatesVouchForTheirSubject(t *testing.T) {
	t.Parallel()
	a := open(t, t.TempDir(), epoch)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Certificate())
	verify := func(p Pair, usage x509.ExtKeyUsage, host string) *x509.Certificate {
		t.Helper()
		block, _ := pem.Decode(p.Cert)
		cert, err := x509.ParseCertificate(block.Bytes)
		testkit.Check(t, err)
		if _, err := cert.Verify(x509.VerifyOptions{
			Roots: roots, CurrentTime: epoch, DNSName: host,
			KeyUsages: []x509.ExtKeyUsage{usage},
		}); err != nil {
			t.Errorf("verify %s: %v", p.CertFile, err)
		}
		return cert
	}
	for _, host := range server.Hosts {
		verify(issue(t, a, "server", server), x509.ExtKeyUsageServerAuth, host)
	}
	user := verify(issue(t, a, "user", Subject{User: "ann", Groups: []string{"b", "a"}}), x509.ExtKeyUsageClientAuth,
		"")
	if user.Subject.CommonName != "ann" || len(user.Subject.Organization) != 2 {
		t.Errorf("client certificate is for %v, want ann in two groups", user.Subject)
	}
}

func TestReuse(t *testing.T) {
	t.Parallel()
	ann := Subject{User: "ann", Groups: []string{"b", "a"}}
	for name, test := range map[string]struct {
		later  time.Duration
		ask    Subject
		damage func(t *testing.T, p Pair)
		reused bool
	}{
		"the next start finds the same pair": {later: time.Hour, ask: ann, reused: true},
		"the order of groups does not matter": {
			later: time.Hour,
			ask:   Subject{User: "ann", Groups: []string{"a", "b"}}, reused: true,
		},
		"a pair with two months left is kept":   {later: leafLife - 60*24*time.Hour, ask: ann, reused: true},
		"a pair with two weeks left is renewed": {later: leafLife - 14*24*time.Hour, ask: ann},
		"another user gets another pair": {
			later: time.Hour,
			ask:   Subject{User: "bob", Groups: []string{"a", "b"}},
		},
		"a new host gets another pair": {
			later: time.Hour,
			ask:   Subject{User: "ann", Groups: []string{"a", "b"}, Hosts: []string{"localhost"}},
		},
		"a damaged certificate is replaced": {
			later: time.Hour, ask: ann,
			damage: func(t *testing.T, p Pair) { overwrite(t, p.CertFile, "garbage") },
		},
		"a damaged key is replaced": {
			later: time.Hour, ask: ann,
			damage: func(t *testing.T, p Pair) { overwrite(t, p.KeyFile, "garbage") },
		},
		"a key of another certificate is replaced": {later: time.Hour, ask: ann, damage: swapKey},
		"a key that is gone is replaced with certificate": {
			later: time.Hour, ask: ann,
			damage: func(t *testing.T, p Pair) { remove(t, p.KeyFile) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			first := issue(t, open(t, dir, epoch), "x", ann)
			if test.damage != nil {
				test.damage(t, first)
			}
			again := open(t, dir, epoch.Add(test.later))
			second := issue(t, again, "x", test.ask)
			if got := bytes.Equal(first.Cert, second.Cert); got != test.reused {
				t.Errorf("reused = %v, want %v", got, test.reused)
			}
			if !again.vouches(second, test.ask) {
				t.Errorf("the pair does not vouch for %+v", test.ask)
			}
		})
	}
}

func TestAuthorityOutlivesRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := open(t, dir, epoch).Certificate()
	if second := open(t, dir, epoch.Add(365*24*time.Hour)).Certificate(); !bytes.Equal(first, second) {
		t.Error("a year later the authority is another one")
	}
	late := open(t, dir, epoch.Add(authorityLife))
	if bytes.Equal(first, late.Certificate()) {
		t.Error("an authority that is about to expire is kept")
	}
}

func TestTokenKeyIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := open(t, dir, epoch).TokenKey()
	testkit.Check(t, err)
	// Its certificate runs out, but tokens are checked with the key alone.
	second, err := open(t, dir, epoch.Add(2*leafLife)).TokenKey()
	testkit.Check(t, err)
	if !bytes.Equal(first.Key, second.Key) {
		t.Error("two years later tokens are signed with another key")
	}
}

func TestBrokenAuthorityIsNamedNotReplaced(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"certificate": "ca.crt", "key": "ca.key"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			open(t, dir, epoch)
			overwrite(t, filepath.Join(dir, file), "garbage")
			_, err := Open(dir, epoch)
			var broken *Broken
			if !errors.As(err, &broken) {
				t.Fatalf("Open with a damaged %s: %v, want *Broken", file, err)
			}
			if text, _ := os.ReadFile(filepath.Join(dir, file)); string(text) != "garbage" {
				t.Errorf("%s was overwritten", file)
			}
		})
	}
}

func TestFilesAreForTheOwnerAlone(t *testing.T) {
	t.Parallel()
	a := open(t, t.TempDir(), epoch)
	p := issue(t, a, "x", server)
	for _, file := range []string{p.CertFile, p.KeyFile, a.CertificateFile()} {
		info, err := os.Stat(file)
		testkit.Check(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", file, info.Mode().Perm())
		}
	}
}

func overwrite(t *testing.T, file, text string) {
	t.Helper()
	testkit.Check(t, os.WriteFile(file, []byte(text), 0o600))
}

func remove(t *testing.T, file string) {
	t.Helper()
	testkit.Check(t, os.Remove(file))
}

func swapKey(t *testing.T, p Pair) {
	t.Helper()
	other := issue(t, open(t, t.TempDir(), epoch), "other", server)
	overwrite(t, p.KeyFile, string(other.Key))
}
