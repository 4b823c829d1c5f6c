package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
)

const (
	// configMap publishes the authorities to command lines, in the namespace of the release.
	configMap = "tenon-ca"
	// webhooks is the name of both webhook configurations.
	webhooks = "tenon"

	bundleKey = "ca.crt" // in the Secret and in the ConfigMap

	// interval is the time between passes when nothing changes: four objects are read by their names.
	interval = 5 * time.Second
)

// Options are what a Keeper needs.
type Options struct {
	Client kubernetes.Interface
	// Secret holds the certificates, in the namespace of the release.
	Namespace, Secret string
	// Now is the time by the clock of those who check certificates.
	Now func() time.Time
}

// Keeper keeps the certificates of a release and serves the manager's. Every replica runs one.
type Keeper struct {
	o      Options
	hosts  map[string]string
	served atomic.Pointer[tls.Certificate]
}

// NewKeeper returns a Keeper that does not run and has no certificate.
func NewKeeper(o Options) *Keeper { return &Keeper{o: o, hosts: hosts(o.Namespace)} }

// GetCertificate is for a tls.Config. It returns an error until there is a certificate.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.served.Load(); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("no certificate yet: Secret %s/%s and the manager's log say why", k.o.Namespace, k.o.Secret)
}

// Expiry returns a metric, which is not registered.
func (k *Keeper) Expiry() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenon_certificate_expiry_timestamp_seconds",
		Help: "Expiry time of the certificate that this manager serves, in seconds since 1970; 0 while it has none. " +
			"Absent if certificates come from files.",
	}, func() float64 {
		if c := k.served.Load(); c != nil {
			return float64(c.Leaf.NotAfter.Unix())
		}
		return 0
	})
}

// NeedLeaderElection is false: every replica serves, and each one can do what is due.
func (*Keeper) NeedLeaderElection() bool { return false }

// Start works until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = k.pass(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Certificates not kept")
			}
		}
	}, interval)
	return nil
}

// pass serves what the Secret says and makes the next change that is due: to the Secret, else to what is published. It
// reports whether there may be more to do at once.
//
// Published bundles are read before the Secret, and written only as they were read: none is replaced by what an older
// Secret says.
func (k *Keeper) pass(ctx context.Context) (changed bool, err error) {
	publishers, unread := k.publishers(ctx)
	secret, write, err := open(ctx, k.o.Client.CoreV1().Secrets(k.o.Namespace),
		&corev1.Secret{ObjectMeta: k.meta(k.o.Secret)})
	if err != nil {
		return false, errors.Join(err, unread)
	}
	now := k.o.Now() // not before what was read
	s := decode(k.hosts, secret.Data, secret.Annotations[annotation.RotateCertificates], now)
	if k.serve(ctx, s); unread != nil {
		return false, unread
	}
	for key := range s.active {
		if server, _, _ := strings.Cut(key, "."); k.hosts[server] == "" {
			return false, fmt.Errorf("write Secret %s/%s: it has %s, which is not the manager's: name another one",
				k.o.Namespace, k.o.Secret, key)
		}
	}
	var published [][]*x509.Certificate
	for _, p := range publishers {
		for _, b := range p.bundles {
			published = append(published, parse(*b))
		}
	}
	next, problem := s.advance(published, now)
	data := next.data()
	if !maps.EqualFunc(data, secret.Data, bytes.Equal) || next.rotate != s.rotate {
		secret.Data = data
		delete(secret.Annotations, annotation.RotateCertificates)
		if next.rotate != "" {
			metav1.SetMetaDataAnnotation(&secret.ObjectMeta, annotation.RotateCertificates, next.rotate)
		}
		err := write()
		switch {
		case isOvertaken(err):
			return true, nil
		case err == nil:
			klog.FromContext(ctx).Info("Certificates changed", "authorities", len(next.authorities),
				"unpublished", len(next.next) > 0)
			return true, problem
		}
		problem = errors.Join(problem, fmt.Errorf("write Secret %s/%s: %w", k.o.Namespace, k.o.Secret, err))
		if s.signer == nil {
			return false, problem
		}
	}
	for _, p := range publishers { // with a signer, or with all that they publish among the authorities
		again, err := p.publish(ctx, encode(s.authorities...))
		changed, problem = changed || again, errors.Join(problem, err)
	}
	return changed, problem
}

// serve serves the manager's pair where the Secret has one that clients accept.
func (k *Keeper) serve(ctx context.Context, s state) {
	text := s.active[manager+".crt"]
	if served := k.served.Load(); s.signer == nil || served != nil && bytes.Equal(encode(served.Leaf), text) {
		return
	}
	if c, err := tls.X509KeyPair(text, s.active[manager+".key"]); err == nil { // as it has a signer
		k.served.Store(&c)
		klog.FromContext(ctx).Info("Certificate loaded", "expires", c.Leaf.NotAfter)
	}
}

func (k *Keeper) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: k.o.Namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": "tenon"},
	}
}

// publisher is an object that shows authorities to clients.
type publisher struct {
	name    string
	bundles []*[]byte // where in the object
	write   func() error
}

// publish makes every bundle of the object what it should be.
func (p publisher) publish(ctx context.Context, want []byte) (changed bool, err error) {
	for _, b := range p.bundles {
		if !bytes.Equal(*b, want) {
			*b, changed = want, true
		}
	}
	if !changed {
		return false, nil
	}
	if err := p.write(); err != nil && !isOvertaken(err) {
		return false, fmt.Errorf("publish the authorities in %s: %w", p.name, err)
	}
	klog.FromContext(ctx).Info("Authorities published", "object", p.name)
	return true, nil
}

// publishers reads the objects that show authorities. Webhook configurations that do not exist are left out, and in
// them what does not name a Service.
func (k *Keeper) publishers(ctx context.Context) ([]publisher, error) {
	ca, writeCA, failed := open(ctx, k.o.Client.CoreV1().ConfigMaps(k.o.Namespace),
		&corev1.ConfigMap{ObjectMeta: k.meta(configMap)})
	text := []byte(ca.Data[bundleKey])
	out := []publisher{{"ConfigMap " + configMap, []*[]byte{&text}, func() error {
		ca.Data = map[string]string{bundleKey: string(text)}
		return writeCA()
	}}}
	add := func(kind string, clients []*admissionregistrationv1.WebhookClientConfig, write func() error, err error) {
		p := publisher{name: kind + " " + webhooks, write: write}
		for _, c := range clients {
			if c.Service != nil {
				p.bundles = append(p.bundles, &c.CABundle)
			}
		}
		out, failed = append(out, p), errors.Join(failed, err)
	}
	var clients []*admissionregistrationv1.WebhookClientConfig
	m, write, err := open(ctx, k.o.Client.AdmissionregistrationV1().MutatingWebhookConfigurations(),
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhooks}})
	for i := range m.Webhooks {
		clients = append(clients, &m.Webhooks[i].ClientConfig)
	}
	add("MutatingWebhookConfiguration", clients, write, err)
	clients = nil
	v, write, err := open(ctx, k.o.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhooks}})
	for i := range v.Webhooks {
		clients = append(clients, &v.Webhooks[i].ClientConfig)
	}
	add("ValidatingWebhookConfiguration", clients, write, err)
	return out, failed
}

// open reads the object that has the name of none, and returns none where the API server does not have it. write writes
// it if it is still as it was read.
func open[T metav1.Object](ctx context.Context, c interface {
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
}, none T,
) (object T, write func() error, err error) {
	object, err = c.Get(ctx, none.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return none, func() error { _, err := c.Create(ctx, none, metav1.CreateOptions{}); return err }, nil
	}
	return object, func() error { _, err := c.Update(ctx, object, metav1.UpdateOptions{}); return err }, err
}

// isOvertaken reports whether another writer was faster: what was read is old.
func isOvertaken(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// Clock is that of the API server, by the Date of its last answer: it checks the certificates of webhooks, and replicas
// whose own clocks differ must not replace each other's.
type Clock struct{ ahead atomic.Int64 }

// Now returns the time. Before the first answer it is this machine's.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Wrap is for rest.Config.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper { return &listener{c, next} }

type listener struct {
	*Clock
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (l *listener) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err == nil {
		if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			l.ahead.Store(int64(time.Until(date)))
		}
	}
	return resp, err
}
