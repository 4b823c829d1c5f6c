package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/view"
)

var (
	scheduler   = component{view.SchedulerName, "the scheduler", 10259}
	descheduler = component{"tenon-descheduler", "the descheduler", 8443}
)

// errNoScheduler is returned where no lease says that a scheduler of Tenon has ever led.
var errNoScheduler = errors.New("no scheduler was asked: neither the kubeconfig nor a lease names one")

// askLeader asks the replica that holds the lease, through its pod, and once more where another one leads by now.
func (d diagnostics) askLeader(ctx context.Context, into any, path, query string) error {
	if d.flags == nil {
		return errNoScheduler
	}
	c, err := connect(d.flags)
	if err != nil {
		return err
	}
	err = d.askHolder(ctx, c, into, path, query)
	if errors.Is(err, errWaiting) {
		err = d.askHolder(ctx, c, into, path, query)
	}
	return err
}

func (d diagnostics) askHolder(ctx context.Context, c cluster, into any, path, query string) error {
	who := d.who()
	lease, err := c.lease(ctx, who.name)
	if apierrors.IsNotFound(err) && who == descheduler {
		return failure{ExitUnreachable, errors.New("no descheduler was asked: neither the kubeconfig nor a lease " +
			"names one; install tenon-descheduler, or name its address with --descheduler")}
	}
	if apierrors.IsNotFound(err) {
		return errNoScheduler
	}
	if err != nil {
		return err
	}
	holder := holderOf(lease)
	if holder == "" {
		return fmt.Errorf("no %s leads: its lease has no holder", strings.TrimPrefix(who.title, "the "))
	}
	client, err := c.componentClient(ctx, who)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	address, stop, err := c.forwardPort(ctx, installedIn(), holder, who.port)
	if err != nil {
		return err
	}
	defer stop()
	target := (&url.URL{Scheme: "https", Host: address}).JoinPath(path)
	target.RawQuery = query
	return d.ask(ctx, client, target, into)
}

// lease returns that of a component, in the namespace of the installation or where kube-scheduler's is by default.
func (c cluster) lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	namespace := installedIn()
	lease, err := c.core.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		namespace = metav1.NamespaceSystem
		lease, err = c.core.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return lease, rightMissing(err, "get on leases of namespace "+namespace)
}

// holderOf returns the pod that holds a lease: its host name, before the suffix of this start.
func holderOf(lease *coordinationv1.Lease) string {
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if i := strings.LastIndex(holder, "_"); i >= 0 {
		holder = holder[:i]
	}
	return holder
}

// componentClient returns a client with the user's own credentials for a server whose certificate the authority of the
// installation has signed. Whatever the kubeconfig says of checks, nothing is sent to another server: TLS checks the
// certificate before it shows one of the client's, and before the first request.
func (c cluster) componentClient(ctx context.Context, who component) (*http.Client, error) {
	if c.config.Impersonate.UserName != "" {
		return nil, fmt.Errorf("%s answers no one in the name of another: --as cannot be passed on", who.title)
	}
	published, err := c.core.CoreV1().ConfigMaps(installedIn()).Get(ctx, authorityConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the authority of the certificate of %s: %w", who.title,
			rightMissing(err, "get on configmaps of namespace "+installedIn()))
	}
	authority := []byte(published.Data[authorityKey])
	if !x509.NewCertPool().AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("ConfigMap %s/%s has no certificate in %s: %s is shown no credentials",
			installedIn(), authorityConfigMap, authorityKey, who.title)
	}
	config := rest.CopyConfig(c.config)
	config.Insecure, config.CAFile, config.CAData = false, "", authority
	config.ServerName = who.name + "." + installedIn() + ".svc"
	config.Timeout, config.Dial = schedulerTimeout, nil
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	// The transport shows the credentials to every server that it is sent to.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, nil
}
