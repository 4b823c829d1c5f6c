package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"iter"
	"strconv"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
)

// server has at most one object of each resource, and refuses an update of what is not the latest version.
type server struct {
	objects map[string]runtime.Object
	version int
	// mayWrite and mayRead refuse requests where they return false.
	mayWrite, mayRead func(resource string) bool
	// accepted are answers that clients have given before: certificate, bundle and time say them all.
	accepted map[string]bool
}

// newServer has both webhook configurations, without authorities.
func newServer() *server {
	s := &server{objects: map[string]runtime.Object{}, accepted: map[string]bool{}}
	service := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{}}
	s.put("mutatingwebhookconfigurations", &admissionregistrationv1.MutatingWebhookConfiguration{
		Webhooks: []admissionregistrationv1.MutatingWebhook{{ClientConfig: service}, {ClientConfig: service}},
	})
	s.put("validatingwebhookconfigurations", &admissionregistrationv1.ValidatingWebhookConfiguration{
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{ClientConfig: service},
			{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://elsewhere")}},
		},
	})
	return s
}

func (s *server) put(resource string, object runtime.Object) {
	s.version++
	object = object.DeepCopyObject()
	object.(metav1.Object).SetResourceVersion(strconv.Itoa(s.version))
	s.objects[resource] = object
}

// client calls before each request; its error is the answer.
func (s *server) client(before func(verb, resource string) error) kubernetes.Interface {
	c := &fake.Clientset{}
	c.AddReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		group, resource := a.GetResource().GroupResource(), a.GetResource().Resource
		err := before(a.GetVerb(), resource)
		if err == nil && (a.GetVerb() == "get" && s.mayRead != nil && !s.mayRead(resource) ||
			a.GetVerb() != "get" && s.mayWrite != nil && !s.mayWrite(resource)) {
			err = apierrors.NewForbidden(group, "", errors.New("no such right"))
		}
		if err != nil {
			return true, nil, err
		}
		stored := s.objects[resource]
		switch a := a.(type) {
		case clienttesting.CreateActionImpl:
			if stored != nil {
				return true, nil, apierrors.NewAlreadyExists(group, "")
			}
			s.put(resource, a.GetObject())
		case clienttesting.UpdateActionImpl:
			read := a.GetObject().(metav1.Object).GetResourceVersion()
			if stored == nil || stored.(metav1.Object).GetResourceVersion() != read {
				return true, nil, apierrors.NewConflict(group, "", errors.New("it has changed"))
			}
			s.put(resource, a.GetObject())
		case clienttesting.GetActionImpl:
			if stored == nil {
				return true, nil, apierrors.NewNotFound(group, "")
			}
			return true, stored.DeepCopyObject(), nil
		default:
			return true, nil, errors.New("no Keeper makes this request")
		}
		return true, s.objects[resource].DeepCopyObject(), nil
	})
	return c
}

// bundles are those that clients read, by the object and the place in it.
func (s *server) bundles() map[string]*[]byte {
	out := map[string]*[]byte{}
	m := s.objects["mutatingwebhookconfigurations"].(*admissionregistrationv1.MutatingWebhookConfiguration)
	for i := range m.Webhooks {
		out["mutating "+strconv.Itoa(i)] = &m.Webhooks[i].ClientConfig.CABundle
	}
	v := s.objects["validatingwebhookconfigurations"].(*admissionregistrationv1.ValidatingWebhookConfiguration)
	out["validating"] = &v.Webhooks[0].ClientConfig.CABundle
	if c, ok := s.objects["configmaps"].(*corev1.ConfigMap); ok {
		text := []byte(c.Data[bundleKey])
		out["ConfigMap"] = &text
	}
	return out
}

// upgrade is what an upgrade of a chart does that replaces the webhook configurations.
func (s *server) upgrade() {
	for where, bundle := range s.bundles() {
		if where != "ConfigMap" {
			*bundle = nil
		}
	}
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		s.put(resource, s.objects[resource])
	}
}

// edit changes the Secret, if there is one.
func (s *server) edit(change func(*corev1.Secret)) {
	if secret, ok := s.objects["secrets"].(*corev1.Secret); ok {
		change(secret)
		s.put("secrets", secret)
	}
}

func (s *server) rotate(value string) {
	s.edit(func(secret *corev1.Secret) {
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, annotation.RotateCertificates, value)
	})
}

// replica is a Keeper of which step lets one request through.
type replica struct {
	keeper *Keeper
	step   func()
	stop   func()
	failed error // of the last pass
}

func (s *server) start(now func() time.Time, mayWrite func() bool) *replica {
	r := &replica{}
	var yield func(struct{}) bool
	running := true
	client := s.client(func(verb, _ string) error {
		if running = running && yield(struct{}{}); !running {
			return errors.New("stopped")
		}
		if verb != "get" && !mayWrite() {
			return errors.New("may not write")
		}
		return nil
	})
	r.keeper = NewKeeper(Options{Client: client, Namespace: "ns", Secret: "certificates", Now: now})
	next, stop := iter.Pull(func(y func(struct{}) bool) {
		for yield = y; running; {
			_, r.failed = r.keeper.pass(context.Background())
		}
	})
	r.step, r.stop = func() { next() }, stop
	return r
}

// refusal says who would refuse a server's certificate at one of the times; "" = none. Certificates that have expired
// and bundles that are empty do not count.
func (s *server) refusal(served *tls.Certificate, times ...time.Time) string {
	if served == nil {
		return ""
	}
	for where, bundle := range s.bundles() {
		for _, now := range times {
			question := now.String() + string(served.Certificate[0]) + string(*bundle)
			if len(*bundle) == 0 || now.After(served.Leaf.NotAfter) || s.accepted[question] {
				continue
			}
			s.accepted[question] = true
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(*bundle)
			if _, err := served.Leaf.Verify(x509.VerifyOptions{
				Roots: roots, DNSName: "tenon-manager.ns.svc", CurrentTime: now,
			}); err != nil {
				return where + ": " + err.Error()
			}
		}
	}
	return ""
}

// settled is a server with a Keeper after its first passes.
func settled(t *testing.T) (*server, *Keeper, *time.Time) {
	t.Helper()
	s, now := newServer(), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	k := NewKeeper(Options{
		Client:    s.client(func(string, string) error { return nil }),
		Namespace: "ns", Secret: "certificates", Now: func() time.Time { return now },
	})
	testkit.Check(t, s.syncUntilStable(t, k))
	return s, k, &now
}

// syncUntilStable makes passes until nothing changes, and returns the error of the last one. What is served is never
// refused.
func (s *server) syncUntilStable(t *testing.T, k *Keeper) error {
	t.Helper()
	for range 20 {
		changed, err := k.pass(t.Context())
		if refusal := s.refusal(k.served.Load(), k.o.Now()); refusal != "" {
			t.Fatal(refusal)
		}
		if !changed {
			return err
		}
	}
	t.Fatal("20 passes, and every one has changed something")
	return nil
}

// state is what the Secret says.
func (s *server) state(now time.Time) state {
	secret, ok := s.objects["secrets"].(*corev1.Secret)
	if !ok {
		return state{}
	}
	return decode(hosts("ns"), secret.Data, secret.Annotations[annotation.RotateCertificates], now)
}
